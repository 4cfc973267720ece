package dataplane

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func TestAServerThatCameUpIsGivenItsClientsAFewAtATime(t *testing.T) {
	for name, more := range map[string][]func(*route.Port){"tcp": nil, "http, which is followed": {speaksHTTP}, "http, which is marked": {marks}} {
		t.Run(name, func(t *testing.T) {
			const clients, most = 20, 3
			r := newRig(t)
			r.route.Hold.ReleaseConcurrency = most
			address := r.serve("web", route.TCP, more...)
			all := make([]*net.TCPConn, clients)
			for i := range all {
				all[i] = dialTCP(t, address)
				write(t, all[i], request)
			}
			r.queued(clients)
			r.phase(v1alpha1.PhaseWaking) // nobody waits for a call of its own
			var asking, worst atomic.Int32
			answers := make(chan struct{})
			server := freeAddress(t, route.TCP)
			listenTCP(t, server, func(c *net.TCPConn) {
				if _, err := io.ReadFull(c, make([]byte, len(request))); err != nil {
					return
				}
				for n := asking.Add(1); ; {
					if was := worst.Load(); n <= was || worst.CompareAndSwap(was, n) {
						break
					}
				}
				<-answers
				asking.Add(-1)
				_, _ = io.WriteString(c, response)
				_, _ = io.Copy(io.Discard, c) // it stays, and others come all the same
			})
			r.backend(server, true)
			r.eventually("the first are at the server", func() bool { return asking.Load() == most })
			r.never("more are", 300*time.Millisecond, func() bool { return asking.Load() > most })
			if queued := r.sessions().Queued; queued != clients-most {
				t.Errorf("%d are held, want %d", queued, clients-most)
			}
			started := time.Now()
			close(answers)
			var wg sync.WaitGroup
			for i, c := range all {
				wg.Go(func() {
					// Marked responses are longer.
					if _, err := io.ReadFull(c, make([]byte, len(response))); err != nil {
						t.Errorf("client %d: %v", i, err)
					}
				})
			}
			wg.Wait()
			if took := time.Since(started); took > 4*time.Second {
				t.Errorf("they were served after %s, which is no sooner than if the server didn't answer", took)
			}
			if n := worst.Load(); n > most {
				t.Errorf("%d asked the server at once, want %d", n, most)
			}
			r.queued(0)
			if n := r.sessions().Sessions; n != clients {
				t.Errorf("%d are relayed, want %d", n, clients)
			}
			if n := r.metric("dormouse_resolver_wake_seconds", map[string]string{"stage": "total"}); n != 1 {
				t.Errorf("one wake counts as %v", n)
			}
		})
	}
}

func TestAReleasedClientThatGoesAwayMakesRoomForTheNext(t *testing.T) {
	r := newRig(t)
	r.route.Hold.ReleaseConcurrency = 1
	address := r.serve("game", route.TCP)
	first, second := dialTCP(t, address), dialTCP(t, address)
	write(t, first, "a")
	r.queued(2)
	came := make(chan byte, 2)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, func(c *net.TCPConn) {
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		came <- b[0]
		_, _ = io.Copy(io.Discard, c)
	})
	r.backend(server, true)
	if got := <-came; got != 'a' {
		t.Fatalf("the first to come is %q", got)
	}
	write(t, second, "b")
	_ = first.Close()
	started := time.Now()
	if got := <-came; got != 'b' {
		t.Fatalf("the next to come is %q", got)
	}
	if took := time.Since(started); took > 4*time.Second {
		t.Errorf("it came after %s, which is no sooner than if the first were there", took)
	}
}
