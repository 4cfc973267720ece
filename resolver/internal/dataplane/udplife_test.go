package dataplane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func TestAUDPSessionEndsAfterSilence(t *testing.T) {
	const idle = 500 * time.Millisecond
	r := newRig(t, udpIdle(idle))
	address := r.serve("game", route.UDP)
	server := freeAddress(t, route.UDP)
	s := listenUDP(t, server)
	r.backend(server, true)
	c := dialUDP(t, address)
	write(t, c, "a")
	hear(t, c, "re:a")
	r.eventually("the session counts", func() bool { s := r.sessions(); return s.Sessions == 1 && s.Queued == 0 })
	last := r.sessions().LastActive
	r.eventually("the session ends", func() bool { return r.sessions().Sessions == 0 })
	if lived := time.Since(last); lived < idle {
		t.Errorf("the session ended %s after its last datagram", lived)
	}
	if got := r.sessions().LastActive; !got.Equal(last) {
		t.Errorf("lastActive moved from %s to %s without a datagram", last, got)
	}
	// The client comes again from the same port, as another session.
	write(t, c, "b")
	hear(t, c, "re:b")
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.from) != 2 {
		t.Errorf("the server saw %d peers, want 2", len(s.from))
	}
}

// Who speaks in the moment in which its session's time is over is answered: in this one, or
// in another. A server that takes longer than that time isn't waited for, and nor is a client who
// has to wait for that long, both of which happens where a machine stands still for a moment.
func TestAClientThatSpeaksAsItsTimeRunsOutIsAnswered(t *testing.T) {
	const idle, clients, rounds = 50 * time.Millisecond, 64, 30
	r := newRig(t, udpIdle(idle))
	address := r.serve("game", route.UDP)
	server := freeAddress(t, route.UDP)
	s := listenUDP(t, server)
	r.backend(server, true)
	var late atomic.Int32
	var group sync.WaitGroup
	stoodStill := watchStalls(t, idle/2)
	for i := range clients {
		group.Go(func() {
			c := dialUDP(t, address)
			for round := range rounds {
				said := fmt.Sprintf("%d of %d", round, i)
				began := time.Now()
				_ = c.SetDeadline(began.Add(patience))
				got := make([]byte, 64)
				_, err := c.Write([]byte(said))
				n := 0
				if err == nil {
					n, err = c.Read(got)
				}
				if answered := s.answered(said); err != nil && (answered.Sub(began) > idle/2 || stoodStill(began)) {
					late.Add(1)
				} else if err != nil || string(got[:n]) != "re:"+said {
					t.Errorf("client %d said %q and heard %q: %v; the server answered after %s", i, said, got[:n], err, answered.Sub(began))
					return
				}
				// A session ends that long after what was last heard in it, as exact as a timer.
				<-time.After(idle + service.LastSeenStep + time.Duration(rand.IntN(1000)-800)*time.Microsecond)
			}
		})
	}
	group.Wait()
	if n := late.Load(); n > clients*rounds/10 {
		t.Errorf("%d of %d answers were too late to be judged", n, clients*rounds)
	}
}

// watchStalls watches for moments in which this process stands still for that long or longer. What it returns
// reports whether there was one since a time.
func watchStalls(t *testing.T, long time.Duration) func(since time.Time) bool {
	t.Helper()
	var last atomic.Int64
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			began := time.Now()
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
			if now := time.Now(); now.Sub(began) >= long {
				last.Store(now.UnixNano())
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return func(since time.Time) bool { return last.Load() > since.UnixNano() }
}

func TestADatagramKeepsASessionAlive(t *testing.T) {
	const idle, most = 400 * time.Millisecond, 10
	r := newRig(t, udpIdle(idle))
	address := r.serve("game", route.UDP)
	server := freeAddress(t, route.UDP)
	s := listenUDP(t, server)
	r.backend(server, true)
	for range most {
		c, before := dialUDP(t, address), s.peers()
		// Where the machine stands still for a moment, the client itself was silent for too long.
		var last time.Time
		late := false
		for began := time.Now(); time.Since(began) < 3*idle; <-time.After(idle / 8) {
			sent := time.Now()
			write(t, c, "a")
			hear(t, c, "re:a")
			late = late || !last.IsZero() && time.Since(last) > idle/2
			last = sent
		}
		if got := s.peers() - before; got == 1 {
			return
		} else if !late {
			t.Fatalf("the server saw %d peers, want 1", got)
		}
	}
	t.Fatal("the client was too late each time")
}

func TestAHeldUDPClientThatIsSilentIsLetGo(t *testing.T) {
	r := newRig(t, udpIdle(500*time.Millisecond))
	c := dialUDP(t, r.serve("game", route.UDP))
	write(t, c, "a")
	r.queued(1)
	r.queued(0)
}

func TestARefusedDatagramIsNotTheEndOfASession(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP)
	server := freeAddress(t, route.UDP)
	s := listenUDP(t, server)
	r.backend(server, true)
	c := dialUDP(t, address)
	write(t, c, "a")
	hear(t, c, "re:a")
	s.stop()
	write(t, c, "lost")
	r.eventually("it was refused", func() bool { return r.metric("dormouse_resolver_refused_datagrams_total", nil) > 0 })
	again := listenUDP(t, server)
	write(t, c, "b")
	hear(t, c, "re:b")
	if got := again.all(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the server got %v", got)
	}
	if got := r.sessions().Sessions; got != 1 {
		t.Errorf("%d sessions, want 1", got)
	}
}

func TestUDPSessionsAreBounded(t *testing.T) {
	r := newRig(t, maxUDP(2))
	address := r.serve("game", route.UDP)
	for range 3 {
		write(t, dialUDP(t, address), "x")
	}
	r.eventually("one is refused", func() bool {
		return r.metric("dormouse_resolver_refused_clients_total", map[string]string{"reason": "too_many_sessions"}) == 1
	})
	r.queued(2)
}

func TestHeldUDPSessionsAreBoundedByMaxConnections(t *testing.T) {
	r := newRig(t)
	r.route.Hold.MaxConnections = 2
	address := r.serve("game", route.UDP)
	for range 4 {
		write(t, dialUDP(t, address), "x")
	}
	r.eventually("two are refused", func() bool {
		return r.metric("dormouse_resolver_refused_clients_total", map[string]string{"reason": "queue_full"}) == 2
	})
	r.queued(2)
}

func TestARemovedRouteLeavesRelayedUDPSessions(t *testing.T) {
	r := newRig(t, udpIdle(time.Second))
	address := r.serve("game", route.UDP)
	server := freeAddress(t, route.UDP)
	s := listenUDP(t, server)
	r.backend(server, true)
	c := dialUDP(t, address)
	write(t, c, "a")
	hear(t, c, "re:a")
	r.eventually("the client is relayed", func() bool { return r.sessions().Sessions == 1 })
	r.server.Remove(r.route.UID)
	write(t, c, "b")
	hear(t, c, "re:b")
	other := dialUDP(t, address)
	write(t, other, "new")
	r.eventually("the session ends, and its port with it", func() bool {
		p, err := net.ListenPacket("udp", address)
		if err == nil {
			_ = p.Close()
		}
		return err == nil
	})
	if got := s.all(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the server got %v", got)
	}
}
