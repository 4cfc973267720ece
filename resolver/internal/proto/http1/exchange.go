package http1

import (
	"math"
	"sync"
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

// maxOpen is how many requests may be open at once on a connection that is followed, for
// clients that pipeline requests.
const maxOpen = 64

// Side is one end of a connection.
type Side uint8

const (
	// Client sends requests.
	Client Side = iota
	// Server sends responses.
	Server
)

// Exchange follows what goes over a connection, and knows when the connection is idle: each
// request was answered, and what was read was passed on. It follows plain HTTP/1 only. After
// anything else, such as a protocol upgrade or an unexpected byte, it is lost: it never follows
// the connection again.
//
// It keeps one line of either side at most, or one head of the client's while that is watched.
// The methods for the two sides may be called concurrently, those for one side in turn.
type Exchange struct {
	mu      sync.Mutex
	streams [2]stream
	// open counts the unanswered requests. Heads and upgrades have a bit for each of them, the
	// oldest lowest: whether the method is HEAD, and whether another protocol is asked for.
	open            int
	heads, upgrades uint64
	// head is set where the request that is being read is a HEAD. Code is the status of the
	// response that is being read, and minor the HTTP version of either side.
	head  bool
	code  int
	minor [2]int
	// passing is set while what was read from a side is not passed on yet.
	passing [2]bool
	// answered is set once there was a request and its whole answer. Since is when the
	// connection became idle after that.
	answered, lost bool
	since          time.Time
	// watch checks the client's requests; nil: nothing does any more. Asked is what was read of
	// the next request's head so far.
	watch *watch
	asked []byte
	// only reports which hosts' requests may be passed; nil: all. Target is that of the request
	// that is being read.
	only   func(name string) bool
	target []byte
	// stop is why nothing more of the client's is passed, and unasked is set once nothing more of
	// the server's is. Upgraded is set once the server has changed the protocol: nothing more is
	// looked at.
	stop              Stop
	unasked, upgraded bool
	// withheld is how much of the client's was read and must not be passed yet.
	withheld int
}

// watch has Watch's arguments.
type watch struct {
	passes func(head []byte) bool
	other  func()
}

// NewExchange follows a connection from its first byte.
func NewExchange() *Exchange {
	x := &Exchange{}
	x.streams[Client].first = func(line []byte) (ok bool) {
		method, target, minor, ok := requestLine(line)
		x.minor[Client] = minor
		if x.only != nil {
			x.target = append(x.target[:0], target...)
		}
		x.head = string(method) == "HEAD"
		return ok && string(method) != "CONNECT"
	}
	x.streams[Server].first = func(line []byte) (ok bool) {
		x.code, x.minor[Server], ok = statusLine(line)
		return ok
	}
	return x
}

// Watch must be called before anything is read. From then on passes is called with each
// request's head. At the first one that doesn't pass or is longer than 4 KiB, or bytes that can't be
// followed, other is called once, before those are passed on.
func (x *Exchange) Watch(passes func(head []byte) bool, other func()) {
	x.watch = &watch{passes, other}
}

// Read takes in what was read from a side, before it is passed on. It returns how much may be
// passed of that and, for the client, of what was withheld before: all, unless Only was called.
func (x *Exchange) Read(from Side, b []byte) (passes int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	guarded := x.only != nil && from == Client
	if guarded && x.stop != GoesOn || from == Server && x.unasked {
		return 0
	}
	x.passing[from] = true
	// All is how much there is, and begin where the head that is being read begins in it.
	all, begin := len(b), 0
	if guarded {
		all += x.withheld
	}
	for len(b) > 0 && !x.lost {
		if x.streams[from].atRest() {
			begin = all - len(b)
		}
		begun, inHead := b, x.streams[from].inHead()
		e := broken // a response without a request
		if from == Client || x.open > 0 {
			b, e = x.streams[from].take(b)
		}
		if x.watch != nil && from == Client && inHead {
			x.ask(begun[:len(begun)-len(b)], e)
		}
		if guarded {
			if x.stop = x.checkHost(e); x.stop != GoesOn {
				if !inHead {
					return all - len(begun)
				}
				return begin
			}
		}
		switch {
		case e == broken, e == headEnd && !x.headRead(from):
			x.lose()
			if x.unasked {
				return all - len(begun)
			}
		case e == messageEnd && from == Server:
			x.answer()
		}
	}
	if x.lost && from == Client {
		x.unwatch()
	}
	if !guarded {
		return all
	}
	x.withheld = 0
	if s := &x.streams[Client]; !x.lost && s.inHead() && !s.atRest() {
		if x.withheld = all - begin; x.withheld > proto.MaxHead {
			x.stop = Cut
		}
		return begin
	}
	return all
}

// maxAsked bounds the head of a request that Watch may let pass, in bytes. It is kept until its end for each
// connection, however many strangers begin one.
const maxAsked = 4 << 10

// ask takes in part of a request's head, and calls passes at its end.
func (x *Exchange) ask(part []byte, e event) {
	if len(x.asked)+len(part) > maxAsked {
		x.unwatch()
		return
	}
	x.asked = append(x.asked, part...)
	switch {
	case e == headEnd && !x.watch.passes(x.asked):
		x.unwatch()
	case e == headEnd:
		x.asked = nil
	}
}

// unwatch calls other, unless it has been called.
func (x *Exchange) unwatch() {
	if x.watch != nil {
		x.watch.other()
		x.watch, x.asked = nil, nil
	}
}

// headRead takes in the end of a head; false: what follows can't be followed.
func (x *Exchange) headRead(from Side) bool {
	s := &x.streams[from]
	if !s.framing.plain(x.minor[from]) {
		return false
	}
	if from == Client {
		if s.framing.upgrades && x.only == nil || x.open == maxOpen {
			return false
		}
		if x.head {
			x.heads |= 1 << x.open
		}
		if s.framing.asks {
			x.upgrades |= 1 << x.open
		}
		x.open++
		s.body()
		return true
	}
	bodiless := x.heads&1 != 0 || x.code == 204 || x.code == 304
	switch {
	case x.code == 101:
		x.upgraded = x.upgrades&1 != 0
		return false
	case x.code < 200:
		return true // the answer is still to come
	case bodiless:
		x.answer()
	case s.framing.encodings == 0 && s.framing.lengths == 0: // it ends with the connection
		s.stage, s.left = inBody, math.MaxInt64
		return x.only != nil
	case !s.body():
		x.answer()
	}
	return true
}

// answer removes the oldest request.
func (x *Exchange) answer() {
	x.open--
	x.heads >>= 1
	x.upgrades >>= 1
	x.answered = true
}

// lose stops following, and forgets what is kept for it. With Only it is always a server that
// can't be followed, as the client is stopped before.
func (x *Exchange) lose() {
	x.lost, x.withheld = true, 0
	if x.only != nil && !x.upgraded {
		x.stop, x.unasked = Cut, true
	}
	x.streams = [2]stream{}
}

// Passed is called when what may be passed of what was read from a side has been passed on. It
// reports whether nothing more of that side's ever may, because it is a server whose client could
// take it for the answer of another host.
func (x *Exchange) Passed(from Side) (unasked bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.passing[from] = false
	if x.settled() {
		x.since = time.Now()
	}
	return from == Server && x.unasked
}

// settled reports whether the connection is idle.
func (x *Exchange) settled() bool {
	return !x.lost && x.answered && x.open == 0 && x.streams[Client].atRest() && x.streams[Server].atRest() &&
		!x.passing[Client] && !x.passing[Server]
}

// Lost reports whether the connection is not followed any more.
func (x *Exchange) Lost() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lost
}

// IdleFor is how long the connection has been idle; 0 while it isn't, or may not be.
func (x *Exchange) IdleFor(now time.Time) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.settled() {
		return 0
	}
	return now.Sub(x.since)
}

// Opaque is how much of what a side sends next can't contain the end of its message. It need
// not be read: Skip takes its place.
func (x *Exchange) Opaque(from Side) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.streams[from]
	switch {
	case x.unasked:
		return 0
	case x.lost:
		return math.MaxInt64
	case s.stage == inBody, s.stage == inChunk:
		return s.left
	}
	return 0
}

// Skip replaces Read and Passed for n bytes that were Opaque.
func (x *Exchange) Skip(from Side, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.lost || !x.streams[from].skip(int64(n)) {
		return
	}
	if from == Server {
		x.answer()
	}
	if x.settled() {
		x.since = time.Now()
	}
}
