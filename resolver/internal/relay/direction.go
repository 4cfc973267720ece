package relay

import (
	"bytes"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

const (
	// bulkChunks is how many full buffers in a row count as bulk. From then on the bytes stay
	// in the kernel, until less than a full buffer is there at once. That costs a third,
	// whereas small messages gain nothing from it.
	bulkChunks = 8
	// worthSplicing is how much of a message that is followed must be left for that.
	worthSplicing = 256 << 10
	// fewBytes is how much is read at once where there is no room for it and it can't be left
	// with its source.
	fewBytes = 2 << 10
	// copies is how many times withheld bytes are kept: the exchange keeps about as much of a
	// head.
	copies = 2
)

// direction is one direction of a relay. There are two for each connection, so it has little
// of its own: what few need is behind a pointer.
type direction struct {
	relay    *Relay
	src, dst *end
	// all is how many bytes were written to the destination's socket.
	all int64
	// What the destination has no room for is kept, or in the pipe, or still with the source.
	// Waiting is set in each case, and nothing more is read meanwhile.
	kept *kept
	pipe *conn.Pipe
	*withholding
	// full is how many full buffers there were in a row.
	full int32
	// shown is how much of what stays with the source the exchange has read.
	shown int32
	side  http1.Side
	// stalled is set where the destination had no room before. What is read then stays with the
	// source until it is sent.
	waiting, stalled bool
	// over is set once nothing more is passed on: the source has ended and all of it is passed
	// on or, where lost is set, part of it is not, or may not be.
	over, lost bool
}

// kept is what the destination has no room for: the rest of a buffer.
type kept struct {
	buffer  *[]byte
	rest    []byte
	charged int
}

// withholding is what a direction that is followed doesn't pass on.
type withholding struct {
	// withheld is what the exchange has read and must not be passed, or not yet, since when,
	// and stop why it never will. Cut is why the relay ends then; empty: the source ended it.
	withheld []byte
	since    time.Time
	stop     http1.Stop
	cut      Why
}

// passesAll is for directions that aren't followed, which most are. It is never changed.
var passesAll withholding

// pump moves once what is there. What is followed, or marked, goes another way. It reports
// whether all that was read is passed on, and nothing else has come of it.
func (f *direction) pump() (all bool) {
	if f.relay.exchange != nil || f.relay.options.Mark != nil {
		f.pumpFollowed()
		return false
	}
	if f.full >= bulkChunks {
		if pipe := conn.BorrowPipe(); pipe != nil {
			f.splice(pipe, math.MaxInt64)
			return false
		}
	}
	chunk := f.src.file.Loop.Buffer[:conn.BufferBytes]
	if f.stalled || f.relay.options.Kept.Full() {
		f.peek(chunk)
		return false
	}
	n, errno := conn.RecvNow(f.src.file.FD, chunk)
	if !f.some(n, errno, "recvfrom") {
		return false
	}
	rest := f.send(chunk[:n])
	if len(rest) > 0 && !f.over {
		f.stalled = true
		f.keep(rest, false)
	}
	return len(rest) == 0
}

// pumpFollowed is pump where the exchange is shown what is read, or the response is marked.
func (f *direction) pumpFollowed() {
	if f.flush(); f.waiting || f.over {
		return
	}
	if f.full >= bulkChunks && len(f.withheld) == 0 {
		if most := f.opaque(); most >= worthSplicing {
			if pipe := conn.BorrowPipe(); pipe != nil {
				f.splice(pipe, most)
				return
			}
		}
	}
	chunk := f.src.file.Loop.Buffer[:conn.BufferBytes]
	tight, guarded, mark := f.stalled || f.relay.options.Kept.Full(), f.guarded(), f.mark()
	if mark != nil {
		chunk = chunk[:len(chunk)-http1.MarkRoom]
	} else if most := f.opaque(); len(f.withheld) == 0 && (f.shown > 0 || tight && (!guarded || most >= fewBytes)) {
		if guarded {
			// What the exchange looks at may have to be withheld, and peeked bytes can't be.
			chunk = chunk[:min(most, int64(len(chunk)))]
		}
		f.peek(chunk)
		return
	}
	before := copy(chunk, f.withheld)
	if tight && (guarded || mark != nil) {
		few := fewBytes
		if guarded && !f.stalled && f.relay.exchange.InHead() {
			few = proto.MaxHead // it is passed, or withheld, as a whole
		}
		chunk = chunk[:min(before+few, len(chunk))]
	}
	n, errno := conn.RecvNow(f.src.file.FD, chunk[before:])
	if !f.some(n, errno, "recvfrom") {
		return
	}
	passes := f.show(chunk[before : before+n])
	if f.side == http1.Client { // what may not be passed of a server is dropped
		f.withhold(chunk[passes:before+n], passes == 0)
	}
	if mark != nil {
		chunk = chunk[:passes+http1.MarkRoom]
		passes = mark.Add(chunk, passes)
	}
	rest := f.send(chunk[:passes])
	switch {
	case len(rest) == 0:
		f.stalled = false
		f.passed()
	case !f.over:
		f.stalled = true
		f.keep(rest, tight)
	}
}

// keep keeps what the destination has no room for. Where memory is tight it uses no more than
// the bytes need.
func (f *direction) keep(rest []byte, tight bool) {
	if tight {
		own := bytes.Clone(rest)
		f.kept = &kept{buffer: &own, rest: own, charged: len(own)}
	} else {
		buffer := conn.Streams.Get()
		f.kept = &kept{buffer: buffer, rest: (*buffer)[:copy(*buffer, rest)], charged: conn.BufferBytes}
	}
	f.waiting = true
	f.relay.options.Kept.Force(f.kept.charged)
}

// flush passes on what was withheld, once the protocol has changed.
func (f *direction) flush() {
	if len(f.withheld) == 0 || f.stop != http1.GoesOn || f.over || f.waiting || f.guarded() {
		return
	}
	rest := f.withheld
	f.withheld = nil
	f.relay.options.Kept.Give(copies * len(rest))
	if rest = f.send(rest); len(rest) > 0 && !f.over {
		f.stalled = true
		f.keep(rest, true)
	}
}

// peek moves what is there, and leaves with the source what the destination has no room for.
// That is read twice, but takes no memory meanwhile.
func (f *direction) peek(chunk []byte) {
	n, errno := conn.PeekNow(f.src.file.FD, chunk)
	if !f.some(n, errno, "recvfrom") {
		return
	}
	fresh := chunk[min(int(f.shown), n):n]
	n -= len(fresh) - f.show(fresh)
	f.shown = max(f.shown, int32(n)) //nolint:gosec // a buffer's bytes
	rest := f.send(chunk[:n])
	if sent := n - len(rest); sent > 0 {
		f.shown -= int32(sent) //nolint:gosec // a buffer's bytes
		conn.SkipNow(f.src.file.FD, sent)
	}
	if f.stalled = len(rest) > 0; f.stalled {
		f.waiting = !f.over
	} else {
		f.passed()
	}
}

// some takes in the result of a read; false: nothing was read.
func (f *direction) some(n int, errno unix.Errno, call string) bool {
	if n < conn.BufferBytes {
		f.full = 0
	} else if f.full < bulkChunks {
		f.full++
	}
	switch {
	case errno == unix.EAGAIN && !f.src.gone:
		return false
	case errno != 0:
		f.src.fail(call, errno)
		f.lose()
		return false
	case n == 0 && f.src.gone:
		// The error was reported before.
		f.lose()
		return false
	case n == 0:
		// The other direction goes on. Where the destination is gone already, that
		// direction will notice.
		f.over = true
		f.relay.by(f.src)
		_ = unix.Shutdown(f.dst.file.FD, unix.SHUT_WR)
		return false
	}
	return true
}

// send writes bytes to the destination, and returns those for which there is no room.
func (f *direction) send(b []byte) []byte {
	for len(b) > 0 {
		n, errno := conn.SendNow(f.dst.file.FD, b)
		if errno == unix.EAGAIN {
			break
		}
		if errno != 0 {
			f.dst.fail("sendto", errno)
			break
		}
		f.moved(n)
		b = b[n:]
	}
	return b
}

func (f *direction) splice(pipe *conn.Pipe, most int64) {
	n, errno := pipe.Fill(f.src.file.FD, most)
	if !f.some(n, errno, "splice") {
		pipe.Return()
		return
	}
	f.pipe, f.waiting = pipe, true
	f.drain()
}

// drain writes to the destination what it had no room for.
func (f *direction) drain() {
	switch {
	case f.pipe != nil:
		held := f.pipe.Held()
		errno := f.pipe.Drain(f.dst.file.FD)
		moved := held - f.pipe.Held()
		f.moved(moved)
		f.skipped(moved)
		switch errno {
		case 0:
			f.release()
			f.passed()
		case unix.EAGAIN:
		default:
			f.dst.fail("splice", errno)
		}
	case f.kept != nil:
		switch rest := f.send(f.kept.rest); {
		case len(rest) == 0:
			f.release()
			f.passed()
		case f.kept != nil: // it isn't lost
			f.kept.rest = rest
		}
	default:
		f.waiting = false
		f.pump()
	}
}

// lose gives up this direction: nothing more is read, and what is kept is dropped.
func (f *direction) lose() {
	f.lost, f.over = true, true
	f.release()
}

func (f *direction) moved(n int) {
	if n <= 0 {
		return
	}
	if answered := f.relay.options.Answered; answered != nil && f.all == 0 && f.side == http1.Server {
		answered()
	}
	f.all += int64(n)
	if timer := f.relay.timer; timer != nil && timer.timed {
		timer.said = f.src.file.Loop.Now()
	}
	count := f.relay.options.ToServer
	if f.side == http1.Server {
		count = f.relay.options.ToClient
	}
	if count != nil {
		count(n)
	}
}

// opaque is how many bytes the exchange need not look at.
func (f *direction) opaque() int64 {
	x := f.relay.exchange
	if x == nil {
		return math.MaxInt64
	}
	opaque := x.Opaque(f.side)
	if opaque > math.MaxInt64-int64(f.shown) {
		return opaque
	}
	return opaque + int64(f.shown)
}

// skipped reports bytes to the exchange that it was not shown, except for those that it was
// shown before.
func (f *direction) skipped(n int) {
	parsed := min(n, int(f.shown))
	f.shown -= int32(parsed) //nolint:gosec // no more than were shown
	if x := f.relay.exchange; x != nil && n > parsed {
		x.Skip(f.side, n-parsed)
	}
}

// show shows the exchange what was read. It returns how much of that may be passed on.
func (f *direction) show(b []byte) (passes int) {
	if x := f.relay.exchange; x != nil && len(b) > 0 {
		return x.Read(f.side, b)
	}
	return len(b)
}

// guarded reports whether the exchange may withhold what is read.
func (f *direction) guarded() bool {
	x := f.relay.exchange
	return x != nil && f.side == http1.Client && x.Guards()
}

// mark is what marks the response that comes next; nil: nothing does.
func (f *direction) mark() *http1.Mark {
	if m := f.relay.options.Mark; m != nil && f.side == http1.Server && !m.Over() {
		return m
	}
	return nil
}

// withhold keeps what may not be passed, or not yet. With same it is more of the same head,
// which replaces what was kept. Where there is no memory for it the client isn't followed any
// further.
func (f *direction) withhold(b []byte, same bool) {
	kept, before := f.relay.options.Kept, len(f.withheld)
	if len(b) == 0 && before == 0 {
		return
	}
	if !same {
		f.withheld, f.since = nil, time.Time{}
	}
	switch more := len(b) - before; {
	case more <= 0:
		kept.Give(-copies * more)
	case !kept.All(copies * more):
		kept.Give(copies * before)
		f.withheld, f.stop, f.cut = nil, http1.Cut, ByMemory
		return
	}
	if len(b) == 0 {
		return
	}
	f.withheld = append(f.withheld, b[len(f.withheld):]...)
	if f.since.IsZero() {
		f.since = time.Now()
	}
	f.stop = f.relay.exchange.Stopped()
}

// dawdles reports whether a request's head has begun and isn't complete, though all that the
// client sent is read.
func (f *direction) dawdles() bool {
	return len(f.withheld) > 0 && f.stop == http1.GoesOn && !f.over && !f.waiting
}

// passed reports to the exchange that all it was shown is passed on, or all that may be. Nothing
// more is read of a request that goes elsewhere, nor of a server that says what nobody asked for.
func (f *direction) passed() {
	if x := f.relay.exchange; x != nil && x.Passed(f.side) {
		f.relay.distrust()
	}
	f.over = f.over || f.stop != http1.GoesOn
}

// release gives back what the direction has borrowed.
func (f *direction) release() {
	f.waiting = false
	if f.kept != nil {
		if len(*f.kept.buffer) == conn.BufferBytes {
			conn.Streams.Put(f.kept.buffer)
		}
		f.relay.options.Kept.Give(f.kept.charged)
		f.kept = nil
		if len(f.withheld) > 0 {
			f.since = time.Now() // nothing was read meanwhile
		}
	}
	if f.pipe != nil {
		f.pipe.Return()
		f.pipe = nil
	}
}
