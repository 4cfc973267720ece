package hold

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

// Options are what a queue works with.
type Options struct {
	Waker Waker
	// Dial connects to backends; nil: conn.Dial.
	Dial DialFunc
	// QuickDials bounds how many dials are made more often at first; nil: none are.
	QuickDials *rate.Limiter
	// Protocols are asked where they can find out more about a backend than that it takes
	// connections. Told is called with what such a backend reports about itself.
	Protocols map[v1alpha1.Protocol]proto.Protocol
	Learnt    func(port string, answers proto.Answers)
	Metrics   *metrics.Metrics
	Log       logr.Logger
}

// Queue holds the clients of one ElasticService. Its bounds are for all of the service's ports
// together.
type Queue struct {
	opts   Options
	ctx    context.Context //nolint:containedctx // the queue's own life, ended by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	size   atomic.Int32

	mu    sync.Mutex
	route *route.Route
	// ports are few: a map would take more memory.
	ports []*port
	// waking is set while the wake loop runs.
	closed, waking bool
	// turns are the clients that were released a few at a time and are not answered yet, the first
	// that was released first.
	turns []*Ticket
	// loads are the pods' players, where backends are chosen by them; nil before the first.
	loads map[string]*load

	// tickets counts clients that wait or try a backend; waiting counts those that have none to
	// try.
	tickets, waiting int
	// lastSeq numbers clients in the order of their arrival, and lastPlace their places in line.
	lastSeq, lastPlace uint64
	// asked is the last client that the last wake call was made for. Approved is the last that
	// may be connected while the service's phase is Asleep.
	asked, approved uint64
	lastCall        time.Time
	lastResult      wake.Result
	// slept is the last sleep that the operator reported. Unseen is the lastWakeTime that it announced and
	// the route doesn't have yet; zero: there is none. Times are compared for equality alone: they may be of
	// operators with different clocks.
	slept, unseen time.Time
	nothing       nothingToWake
	// rouse makes the wake loop look again.
	rouse chan struct{}
	// began is when the first of these clients came, and called when the first call for them
	// was made.
	began, called time.Time
}

// Ticket is one client's place in a queue.
type Ticket struct {
	// Ended is closed once the client's wait has ended, and Outcome is what ended it from then
	// on. They are for whoever waits; Back begins another wait. Clients of UDP ports have them
	// from Datagrams.
	Ended   <-chan struct{}
	Outcome Outcome
	// ended is Ended.
	ended chan struct{}

	queue *Queue
	port  *port
	// client is called in place of Ended; nil: it isn't.
	client Datagrams
	seq    uint64
	until  time.Time
	timer  *time.Timer
	state  state
	// returned is set once it came back from a backend. It has its place in line back then, before
	// those that came later, but only that once: others would wait for ever for one that no backend
	// takes.
	returned bool
	// place orders those that wait; 0: it has none yet.
	place uint64
	// turn is when it was released, where that is done a few at a time.
	turn time.Time
}

type state uint8

const (
	waiting state = iota
	released
	gone
)

// New makes the queue of a route.
func New(r *route.Route, opts Options) *Queue {
	if opts.Dial == nil {
		opts.Dial = conn.Dial
	}
	q := &Queue{opts: opts, rouse: make(chan struct{}, 1)}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	q.Update(r)
	return q
}

// Update takes a new version of the route.
func (q *Queue) Update(r *route.Route) {
	q.mu.Lock()
	var refused []*Ticket
	if q.route != nil && q.slept.Equal(q.route.LastSleep) {
		q.slept = r.LastSleep // a watched object is newer than the answer
	}
	q.route = r
	q.seeWake()
	for i := range r.Ports {
		p := q.port(PortID{r.Ports[i].Name, r.Ports[i].Network})
		if p == nil {
			p = newPort(q, r, &r.Ports[i])
			q.ports = append(q.ports, p)
		}
		p.update(&r.Ports[i])
	}
	for _, p := range slices.Clone(q.ports) {
		if now, ok := r.Port(p.Name); !ok || now.Network != p.Network {
			refused = append(refused, q.drop(p)...)
		}
	}
	q.setLoads()
	q.rouseLocked()
	q.mu.Unlock()
	refuse(refused, proto.RouteGone)
}

// Close refuses the clients that wait. It does not wait for what is under way; Wait does.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	var refused []*Ticket
	for _, p := range slices.Clone(q.ports) {
		refused = append(refused, q.drop(p)...)
	}
	q.mu.Unlock()
	q.cancel()
	refuse(refused, proto.RouteGone)
}

// Wait waits for the goroutines of a closed queue.
func (q *Queue) Wait() { q.wg.Wait() }

// port is a port; nil: the route doesn't have it any more.
func (q *Queue) port(id PortID) *port {
	for _, p := range q.ports {
		if p.PortID == id {
			return p
		}
	}
	return nil
}

// drop forgets a port that is gone, and takes all clients that wait out of it.
func (q *Queue) drop(p *port) []*Ticket {
	p.closed = true
	q.ports = slices.DeleteFunc(q.ports, func(other *port) bool { return other == p })
	out := p.waiting
	p.waiting = nil
	for _, t := range out {
		q.end(t)
		q.waiting--
	}
	p.wake()
	return out
}

func refuse(tickets []*Ticket, reason proto.Reason) {
	for _, t := range tickets {
		t.port.counts.Refused(string(reason))
		t.notify(Outcome{Refused: reason})
	}
}

// Len is how many clients are held: those that wait, and those that try a
// backend and may come back.
func (q *Queue) Len() int { return int(q.size.Load()) }

// Pick gives a backend that a new client of a port may use at once; false: the client has to
// wait its turn. It doesn't stand behind those that only wait for a server that has just come up
// to be given more of them: as long as others come they would never be through, and all that come
// to a server that has long been up would be held.
func (q *Queue) Pick(id PortID) (Release, bool) { return q.pick(id, false) }

// PickUnasked is Pick for a client that may not wait, where Pick has none. While the service is awake another resolver,
// or this one before it started again, has found a backend up: such a client would be refused until somebody else comes
// who may wait. Its backend may not be up yet.
func (q *Queue) PickUnasked(id PortID) (Release, bool) { return q.pick(id, true) }

func (q *Queue) pick(id PortID, unasked bool) (Release, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.port(id)
	if p == nil || q.route.AwaitsWake() || q.behind() || len(p.waiting) > 0 && !p.paced {
		return Release{}, false
	}
	return p.pick(time.Now(), p.anyUp() || unasked && q.route.Phase == v1alpha1.PhaseAwake)
}

// PickForQuery gives a backend for a client that only queries, whether it has room or not;
// false: there is none. The client finds out whether the backend is up.
func (q *Queue) PickForQuery(id PortID) (Release, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.port(id)
	if p == nil || q.route.AwaitsWake() || q.behind() {
		return Release{}, false
	}
	at := p.find(time.Now(), true)
	if at < 0 {
		return Release{}, false
	}
	p.next = (at + 1) % len(p.backends)
	return p.releaseTo(p.backends[at]), true
}

// Avoid leaves a backend alone for a while after it could not be reached.
func (q *Queue) Avoid(id PortID, backend netip.AddrPort) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.port(id); p != nil {
		p.refuse(backend)
	}
}

// Silent is for a client that began to connect at began to the backend that it was released to,
// and heard nothing.
func (q *Queue) Silent(id PortID, g Release, began time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.port(id); p != nil && g.backend != nil {
		p.silent(g.backend, began, time.Now())
	}
}

// Untried ends the try of a backend that was not known to be up and was sent nothing.
func (q *Queue) Untried(id PortID, backend netip.AddrPort) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.port(id); p != nil {
		p.untried(backend)
	}
}

// Answered ends the try of a backend that was not known to be up: it accepted the client's
// first datagram.
func (q *Queue) Answered(id PortID, backend netip.AddrPort) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.port(id); p != nil {
		p.reached(backend)
	}
}

// Hold makes a client wait for a backend of a port, for as long as the route says
// and, unless that is 0, atMost. Client is nil for TCP.
func (q *Queue) Hold(id PortID, client Datagrams, atMost time.Duration) (*Ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.port(id)
	if q.closed || p == nil {
		return nil, ErrGone
	}
	if q.tickets >= q.route.Hold.MaxConnections {
		p.counts.Refused(string(proto.QueueFull))
		return nil, ErrFull
	}
	now := time.Now()
	if q.tickets == 0 {
		q.began, q.called = now, time.Time{}
		q.unseen = time.Time{} // of a call for others
	}
	q.lastSeq++
	t := &Ticket{queue: q, port: p, client: client, seq: q.lastSeq}
	t.begin()
	timeout := q.route.Hold.Timeout
	if atMost > 0 && (timeout == 0 || timeout > atMost) {
		timeout = atMost
	}
	if timeout > 0 {
		t.until = now.Add(timeout)
		t.timer = time.AfterFunc(timeout, t.expire)
	}
	q.tickets++
	q.size.Store(int32(q.tickets)) //nolint:gosec // bounded by the API
	p.counts.HeldBegun()
	q.add(t)
	return t, nil
}

// add makes a ticket wait and starts the loops that serve it, or makes them look again.
func (q *Queue) add(t *Ticket) {
	p := t.port
	t.state = waiting
	q.waiting++
	if len(p.waiting) == 0 {
		p.paced = false // those that were left in line have all gone away
	}
	p.insert(t)
	if p.dialing {
		p.wake()
	} else {
		p.dialing = true
		q.wg.Go(p.dialLoop)
	}
	if q.waking {
		q.rouseLocked()
	} else {
		q.waking = true
		q.wg.Go(q.wakeLoop)
	}
}

// end takes a ticket out of the queue for good.
func (q *Queue) end(t *Ticket) {
	t.state = gone
	q.tickets--
	q.size.Store(int32(q.tickets)) //nolint:gosec // bounded by the API
	t.port.counts.HeldEnded()
	if t.timer != nil {
		t.timer.Stop()
	}
}

// begin begins a wait.
func (t *Ticket) begin() {
	if t.client == nil {
		t.ended = make(chan struct{})
		t.Ended = t.ended
	}
}

// notify ends the client's wait. It is called without the queue's lock.
func (t *Ticket) notify(o Outcome) {
	if t.client != nil {
		t.client.Ended(o)
		return
	}
	t.Outcome = o
	close(t.ended)
}

// Leave ends the wait of a client that went away; false: it was released or refused meanwhile,
// and its wait has ended, or is about to.
func (t *Ticket) Leave() bool {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.state != waiting {
		return false
	}
	t.port.take(t)
	q.waiting--
	q.end(t)
	return true
}

// Delivered ends the place of a client that has its backend, or that went away after it was
// released to one. It reports whether others wait for Answered to be called.
func (t *Ticket) Delivered() (awaited bool) {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.state != released {
		return false
	}
	q.end(t)
	t.port.delivered()
	return !t.turn.IsZero()
}

// Abandon is Delivered for a client that went away.
func (t *Ticket) Abandon() {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.state == released {
		q.end(t)
		q.endTurn(t)
	}
}

// Back makes a client wait again whose backend could not be reached after all. Failed is that
// backend; the zero value where the backend is not to blame. The client is refused when its
// time is over.
func (t *Ticket) Back(failed netip.AddrPort) {
	q := t.queue
	q.mu.Lock()
	if t.state != released {
		q.mu.Unlock()
		return
	}
	q.endTurn(t)
	t.begin()
	reason := proto.Reason("")
	switch {
	case q.closed || t.port.closed:
		reason = proto.RouteGone
	case !t.until.IsZero() && !time.Now().Before(t.until):
		reason = proto.TimedOut
	}
	if reason != "" {
		q.end(t)
		q.mu.Unlock()
		if reason == proto.TimedOut {
			t.port.counts.Refused(string(reason))
		}
		// The series of a service that is gone are gone, too.
		t.notify(Outcome{Refused: reason})
		return
	}
	t.port.failed(failed)
	if t.returned {
		t.place = 0
	}
	t.returned = true
	q.add(t)
	q.mu.Unlock()
}

func (t *Ticket) expire() {
	defer utilruntime.HandleCrash()
	q := t.queue
	q.mu.Lock()
	if t.state != waiting {
		// The client tries a backend; Back refuses it if that fails.
		q.mu.Unlock()
		return
	}
	t.port.take(t)
	q.waiting--
	q.end(t)
	q.mu.Unlock()
	refuse([]*Ticket{t}, proto.TimedOut)
}
