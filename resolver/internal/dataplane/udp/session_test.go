package udp

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/proto/udp"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

// patience bounds what should happen at once on a busy machine.
const patience = 10 * time.Second

// wakes answers each wake call.
type wakes struct{}

func (wakes) Wake(context.Context, string, string, int) wake.Result {
	return wake.Result{Outcome: wake.Accepted, Phase: v1alpha1.PhaseWaking}
}

// world is a service with one port, which is open.
type world struct {
	t       *testing.T
	service *service.Service
	port    *Port
	client  *net.UDPConn
}

func newWorld(t *testing.T) *world {
	t.Helper()
	shared := service.NewShared(service.Options{
		Host: "127.0.0.1", Waker: wakes{}, Metrics: metrics.New(prometheus.NewRegistry()), Log: logr.Discard(),
	})
	w := &world{t: t}
	r := w.route()
	w.service = service.New(shared, r, &service.Activity{})
	w.port = NewPort(w.service.NewPort(r, &r.Ports[0], udp.Protocol{}), &Service{}, &ClosingSockets{})
	socket, err := w.port.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := socket.Serve(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.port.Close()
		_ = socket.Close()
		w.service.Queue.Close()
		shared.Close()
		socket.Cut()
		<-socket.Ended()
		w.service.Queue.Wait()
		loop.Settle()
		shared.Running.Wait()
	})
	w.client = listen(t)
	return w
}

// route has some backends, which serve.
func (w *world) route(backends ...netip.AddrPort) *route.Route {
	r := &route.Route{
		UID: "uid-1", Namespace: "games", Name: "lobby", Service: "lobby", Phase: v1alpha1.PhaseAsleep,
		Hold: route.Hold{Timeout: time.Minute, MaxConnections: 1000, MaxBytes: 64 << 10},
	}
	p := route.Port{Name: "game", Network: route.UDP, Protocol: v1alpha1.ProtocolUDP}
	for _, b := range backends {
		r.Phase = v1alpha1.PhaseAwake
		p.Backends = append(p.Backends, route.Backend{Address: b, Serving: true})
	}
	r.Ports = []route.Port{p}
	return r
}

// serve shows the service a route with some backends.
func (w *world) serve(backends ...netip.AddrPort) {
	r := w.route(backends...)
	w.service.Update(r)
	w.port.Update(r, &r.Ports[0])
}

// say sends a datagram of the client to the port.
func (w *world) say(text string) {
	w.t.Helper()
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(w.port.socket.Load().packets.Port()))
	if _, err := w.client.WriteToUDPAddrPort([]byte(text), to); err != nil {
		w.t.Fatal(err)
	}
}

// session waits until the client has one in a state.
func (w *world) session(state int32) (s *session) {
	w.t.Helper()
	w.eventually("the client has a session", func() bool {
		s = w.port.socket.Load().find(addressOf(w.client))
		return s != nil && s.state.Load() == state
	})
	return s
}

// ticket waits until a session has its ticket.
func (w *world) ticket(s *session) (ticket *hold.Ticket) {
	w.t.Helper()
	w.eventually("the client is held", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		ticket = s.ticket
		return ticket != nil
	})
	return ticket
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("it never came to be that %s", what)
		}
	}
}

func listen(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return c
}

func addressOf(c *net.UDPConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

// hears reads the next datagram.
func hears(t *testing.T, c *net.UDPConn, want string) (from netip.AddrPort) {
	t.Helper()
	buf := make([]byte, 64)
	n, from, err := c.ReadFromUDPAddrPort(buf)
	if err != nil || string(buf[:n]) != want {
		t.Fatalf("got %q, %v; want %q", buf[:n], err, want)
	}
	return from
}

// A session that was never answered ends sooner than others.
func TestASessionThatWasNeverAnsweredEndsSooner(t *testing.T) {
	w := newWorld(t)
	server := listen(t)
	w.serve(addressOf(server))
	w.say("hello")
	s := w.session(sessionLive)
	if got := s.idle(); got != 30*time.Second {
		t.Errorf("a session that was not answered may be silent for %s", got)
	}
	from := hears(t, server, "hello")
	if _, err := server.WriteToUDPAddrPort([]byte("welcome"), from); err != nil {
		t.Fatal(err)
	}
	hears(t, w.client, "welcome")
	w.eventually("it may be silent as long as any", func() bool { return s.idle() == service.DefaultUDPIdle })
}

// The server's address becomes another pod's while the last of what was held is on its
// way there: what the client says next is not that pod's, as if it was in the game.
func TestASessionWhoseServerIsLostMeanwhileIsNotLive(t *testing.T) {
	w := newWorld(t)
	old, next := listen(t), listen(t)
	w.say("one")
	s := w.session(sessionHeld)
	ticket := w.ticket(s)
	if !ticket.Leave() {
		t.Fatal("the client does not wait")
	}
	w.serve(addressOf(old))
	if err := s.connect(addressOf(old)); err != nil {
		t.Fatal(err)
	}
	s.lose(func(a netip.AddrPort) bool { return a == addressOf(old) })
	s.flush()
	if got := s.state.Load(); got != sessionMoves {
		t.Fatalf("the session is in state %d, want %d", got, sessionMoves)
	}
	w.serve(addressOf(next))
	s.socket.loop.Do(s.move)
	hears(t, next, "one")
	w.say("two")
	hears(t, next, "two")
}

// A node that is lost keeps its pods' addresses for minutes, or for ever. Whoever goes on sending to a server on it
// gets another one, as soon as it is silent for long. One that still answers keeps its players.
func TestASessionWhoseServerServesNoMoreEndsOnceThatIsSilent(t *testing.T) {
	w := newWorld(t)
	old, next := listen(t), listen(t)
	w.serve(addressOf(old))
	w.say("one")
	from := hears(t, old, "one")
	if _, err := old.WriteToUDPAddrPort([]byte("welcome"), from); err != nil {
		t.Fatal(err)
	}
	hears(t, w.client, "welcome")
	s := w.session(sessionLive)
	w.eventually("the loops have it", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.taken
	})
	silent := func(server, client time.Duration) {
		now := time.Now()
		s.serverAt, s.clientAt = service.LastSeen{}, service.LastSeen{}
		s.serverAt.Note(now.Add(-server))
		s.clientAt.Note(now.Add(-client))
	}
	unserving := func(addresses ...netip.AddrPort) {
		r := w.route(addresses...)
		r.Ports[0].Backends[0].Serving = false
		w.service.Update(r)
		w.port.Update(r, &r.Ports[0])
	}
	for name, c := range map[string]struct {
		serves         bool
		server, client time.Duration
		ends           bool
		within         time.Duration
	}{
		"the server serves":                 {true, 40 * time.Second, 0, false, service.DefaultUDPIdle + time.Second},
		"it doesn't, and answers":           {false, time.Second, 0, false, unansweredIdle},
		"it doesn't, and nobody is heard":   {false, 40 * time.Second, 41 * time.Second, false, unansweredIdle},
		"it doesn't, and is silent":         {false, 31 * time.Second, 0, true, 0},
		"it doesn't, and the client is old": {false, 110 * time.Second, 100 * time.Second, true, 0},
	} {
		silent(c.server, c.client)
		if c.serves {
			w.serve(addressOf(old), addressOf(next))
		} else {
			unserving(addressOf(old), addressOf(next))
		}
		if left, _ := s.left(); (left <= 0) != c.ends || left > c.within {
			t.Errorf("%s: the session ends in %s, want at most %s", name, left, c.within)
		}
	}
	silent(31*time.Second, 0)
	unserving(addressOf(old), addressOf(next))
	s.answered.Store(false)
	s.serverAt = service.LastSeen{}
	if left, _ := s.left(); left > 0 {
		t.Errorf("one that was never answered ends in %s", left)
	}
	s.answered.Store(true)
	silent(31*time.Second, 0)
	w.port.Recheck(func(a netip.AddrPort) bool { return a == addressOf(old) })
	w.eventually("the session is over", func() bool { return s.state.Load() == sessionOver })
	w.eventually("its place is free", func() bool { return w.service.FilesTaken() == 0 })
	w.say("two")
	hears(t, next, "two")
}

// A server may be lost between the moment it is found and the one a client gets it.
func TestNoSessionGoesToAServerThatWasLostBeforeItWasGranted(t *testing.T) {
	w := newWorld(t)
	server := listen(t)
	w.say("one")
	s := w.session(sessionHeld)
	if got := s.Try(t.Context(), addressOf(server)); got != hold.Failed {
		t.Errorf("a try of an address that is no pod's is %v, want Failed", got)
	}
	w.serve(addressOf(server))
	hears(t, server, "one")
}

// A client's first datagram finds out whether the server's port is bound. The server may be lost before the client
// gets it, and the client may never say anything again.
func TestWhatATrySentIsForTheServerThatTheClientGets(t *testing.T) {
	w := newWorld(t)
	old, next := listen(t), listen(t)
	w.say("one")
	s := w.session(sessionHeld)
	w.eventually("the client is held, and goes on without its place", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.ticket != nil && s.ticket.Leave()
	})
	w.serve(addressOf(old), addressOf(next))
	if got := s.Try(t.Context(), addressOf(old)); got != hold.Taken {
		t.Fatalf("the try is %v, want Taken", got)
	}
	hears(t, old, "one")
	if err := s.connect(addressOf(next)); err != nil {
		t.Fatal(err)
	}
	s.flush()
	hears(t, next, "one")
	s.over("")
	if used := s.kept.Used(); used != 0 {
		t.Errorf("%d bytes are charged for a session that is over", used)
	}
}

func TestAServerThatIsLostWhileItIsTriedKeepsNobodyFromTheNext(t *testing.T) {
	w := newWorld(t)
	old, next := listen(t), listen(t)
	w.say("one")
	w.session(sessionHeld)
	w.serve(addressOf(old))
	hears(t, old, "one")
	w.port.EndLost(func(a netip.AddrPort) bool { return a == addressOf(old) })
	w.serve(addressOf(next))
	hears(t, next, "one")
	w.client = listen(t)
	w.say("two")
	hears(t, next, "two")
}

// The queue may release a session before the goroutine that held it has its ticket. Where the backend can't be
// reached then the session has one place in the queue all the same: nobody would give back another one.
func TestASessionThatComesBackBeforeItHasItsTicketWaitsOnce(t *testing.T) {
	w := newWorld(t)
	server := listen(t)
	w.say("one")
	s := w.session(sessionHeld)
	ticket := w.ticket(s)
	s.mu.Lock()
	s.ticket = nil
	s.mu.Unlock()
	s.giveBack(addressOf(server))
	s.held(ticket)
	if n := w.service.Queue.Len(); n != 1 {
		t.Errorf("one client has %d places in the queue", n)
	}
	w.serve(addressOf(server))
	hears(t, server, "one")
	w.eventually("nobody is held", func() bool { return w.service.Queue.Len() == 0 })
}

// releases are a client's in the queue, which accepts each.
type releases chan hold.Outcome

func (releases) Try(context.Context, netip.AddrPort) hold.Tried { return hold.Taken }
func (r releases) Ended(o hold.Outcome)                         { r <- o }

// Once it has its ticket it goes back with that, and waits for another release.
func TestASessionThatCameBackIsReleasedAgain(t *testing.T) {
	w := newWorld(t)
	server := listen(t)
	at := addressOf(server)
	released := make(releases, 10)
	ticket, err := w.service.Queue.Hold(w.port.Key.PortID, released, w.port.Protocol.HoldAtMost())
	if err != nil {
		t.Fatal(err)
	}
	w.serve(at)
	next := func() {
		t.Helper()
		select {
		case o := <-released:
			o.Release.Slot.Leave()
		case <-time.After(patience):
			t.Fatal("it isn't released")
		}
	}
	next()
	s := &session{port: w.port, queued: true, back: &at}
	s.held(ticket)
	defer s.idleTimer.Stop()
	next()
	ticket.Delivered()
	if n := w.service.Queue.Len(); n != 0 {
		t.Errorf("%d are held", n)
	}
}

// A hundred thousand sessions may be there at once. A new field has to be worth its bytes.
func TestASessionIsSmall(t *testing.T) {
	t.Parallel()
	const most = 480 // a size class of the allocator
	if size := unsafe.Sizeof(session{}); size > most {
		t.Errorf("a session takes %d bytes, want at most %d", size, most)
	}
}

// A flood begins sessions as fast as others give their places back. What an earlier session takes
// has to be free by then, or the flood has more than its places.
func TestAPlaceIsFreeOnceItsSessionIsGone(t *testing.T) {
	w := newWorld(t)
	server := listen(t)
	w.serve(addressOf(server))
	for range 20 {
		w.client = listen(t)
		w.say("hello")
		s := w.session(sessionLive)
		hears(t, server, "hello")
		s.over("")
		w.eventually("the session's place is free", func() bool { return w.service.FilesTaken() == 0 })
		if a := w.service.Active; a.Relayed.Load() != 0 || a.Unvalidated.Load() != 0 {
			t.Fatalf("%d sessions and %d without a validated address are relayed, and have no place", a.Relayed.Load(), a.Unvalidated.Load())
		}
	}
}

// A delivery may take long where many take turns.
func TestInALongDeliveryOnlyWhatWasSentLatelyIsKeptForAnotherBackend(t *testing.T) {
	t.Parallel()
	const rest = 10
	s := &session{kept: conn.NewBudget(100)}
	kept := func(more int) {
		s.sent = append(s.sent, make([]byte, more)...)
		s.kept.Force(more)
	}
	kept(30)
	earlier := sentBefore{at: time.Now()}
	forget := func(want int) {
		t.Helper()
		if s.forgetSent(&earlier, rest); len(s.sent) != want || s.kept.Used() != int64(want) {
			t.Errorf("%d bytes are kept, and %d charged, want %d", len(s.sent), s.kept.Used(), want)
		}
	}
	forget(30)
	late := func() { earlier.at = earlier.at.Add(-2 * unansweredTime) }
	late()
	forget(30) // what was sent meanwhile may be new
	kept(5)
	forget(35)
	late()
	forget(15)
	s.answered.Store(true)
	forget(rest)
	s.lost = true
	kept(5)
	forget(rest + 5)
}
