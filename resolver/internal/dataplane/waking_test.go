package dataplane

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func TestManyClientsMakeOneWakeCallAtATime(t *testing.T) {
	r := newRig(t)
	r.operator.set(func(w http.ResponseWriter, n int) {
		if n == 1 {
			// The others come while the first call is under way.
			r.eventually("all clients wait", func() bool { return r.server.Clients() == 200 })
		}
		accept(v1alpha1.PhaseWaking)(w, n)
	})
	address := r.serve("game", route.TCP)
	clients := make([]*net.TCPConn, 200)
	for i := range clients {
		clients[i] = dialTCP(t, address)
		write(t, clients[i], fmt.Sprintf("client %03d", i))
	}
	r.queued(200)
	r.eventually("a call is made for all", func() bool {
		calls := r.operator.all()
		return calls[len(calls)-1].Count == 200
	})
	r.phase(v1alpha1.PhaseWaking)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	for i, c := range clients {
		expect(t, c, fmt.Sprintf("client %03d", i))
	}
	if r.operator.overlap.Load() {
		t.Error("two wake calls were under way at once")
	}
	if n := r.operator.count(); n > 4 {
		t.Errorf("%d wake calls for clients that came at once", n)
	}
}

func TestTheWakeCallIsRepeatedWhateverTheAnswer(t *testing.T) {
	r := newRig(t)
	r.operator.set(func(w http.ResponseWriter, n int) {
		switch n {
		case 1:
			w.WriteHeader(http.StatusNotFound)
		case 2:
			w.WriteHeader(http.StatusUnauthorized)
		case 3:
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusServiceUnavailable)
		case 4:
			_, _ = io.WriteString(w, "what?")
		case 5:
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, "{not json")
		case 6:
			panic(http.ErrAbortHandler)
		default:
			accept(v1alpha1.PhaseWaking)(w, n)
		}
	})
	c := dialTCP(t, r.serve("game", route.TCP))
	r.eventually("the operator is asked nine times", func() bool { return r.operator.count() >= 9 })
	r.operator.mu.Lock()
	for i := 1; i < len(r.operator.times); i++ {
		if apart := r.operator.times[i].Sub(r.operator.times[i-1]); apart > 1500*time.Millisecond {
			t.Errorf("call %d came %s after the one before", i+1, apart)
		}
	}
	r.operator.mu.Unlock()
	for outcome, want := range map[string]float64{"not_found": 1, "unauthorized": 1, "unavailable": 1, "rejected": 1, "malformed": 1} {
		if got := r.metric("dormouse_resolver_wake_calls_total", map[string]string{"outcome": outcome}); got != want {
			t.Errorf("%v calls %s, want %v", got, outcome, want)
		}
	}
	// Once nobody waits, nobody is asked.
	_ = c.Close()
	r.queued(0)
	before := r.operator.count()
	// Longer than the calls are apart; one may have been under way.
	r.never("more calls are made", 1200*time.Millisecond, func() bool { return r.operator.count() > before+1 })
}

func TestTheOperatorsWordIsNewerThanWhatWasWatched(t *testing.T) {
	t.Parallel()
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseWaking, v1alpha1.PhaseAsleep} {
		t.Run("while the phase is "+string(phase), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var up atomic.Bool
			r.operator.set(func(w http.ResponseWriter, n int) {
				answer := v1alpha1.PhaseAsleep
				if n == 1 || up.Load() {
					answer = v1alpha1.PhaseWaking
				}
				accept(answer)(w, n)
			})
			r.phase(phase)
			c := dialTCP(t, r.serve("game", route.TCP))
			// The first call lets the client in; then somebody puts the service
			// to sleep after all.
			r.eventually("the second call is answered", func() bool {
				return r.metric("dormouse_resolver_wake_calls_total", map[string]string{"outcome": "accepted"}) >= 2
			})
			server := freeAddress(t, route.TCP)
			var connected atomic.Bool
			listenTCP(t, server, func(c *net.TCPConn) {
				connected.Store(true)
				tag("hi")(c)
			})
			r.backend(server, true)
			asked := r.operator.count()
			r.eventually("it is asked again", func() bool { return r.operator.count() > asked })
			if connected.Load() {
				t.Error("the client was connected to a server that goes down")
			}
			up.Store(true)
			expect(t, c, "hi")
		})
	}
}

func TestAClientThatComesWhileTheServiceFallsAsleepWakesItBeforeItIsConnected(t *testing.T) {
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseFallingAsleep, v1alpha1.PhaseAsleep} {
		t.Run(string(phase), func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.TCP)
			server := freeAddress(t, route.TCP)
			var connected atomic.Int32
			listenTCP(t, server, func(c *net.TCPConn) {
				connected.Add(1)
				tag("hi")(c)
			})
			r.backend(server, true)
			// The first client is let in by a call of its own, and the server is
			// known to be up from then on.
			expect(t, dialTCP(t, address), "hi")
			before, connectedBefore := r.operator.count(), connected.Load()
			if before != 1 {
				t.Fatalf("%d wake calls, want 1", before)
			}

			proceed := make(chan struct{})
			r.operator.set(func(w http.ResponseWriter, n int) {
				switch n {
				case before + 1:
					<-proceed
					accept(v1alpha1.PhaseAsleep)(w, n)
				case before + 2:
					if connected.Load() != connectedBefore {
						t.Error("a client was connected though the sleep was past cancelling")
					}
					accept(v1alpha1.PhaseWaking)(w, n)
				default:
					accept(v1alpha1.PhaseWaking)(w, n)
				}
			})
			r.phase(phase)
			c := dialTCP(t, address)
			r.eventually("the operator is asked", func() bool { return r.operator.count() == before+1 })
			if connected.Load() != connectedBefore {
				t.Error("a client was connected before the operator answered")
			}
			close(proceed)
			expect(t, c, "hi")
			if r.operator.count() < before+2 {
				t.Error("the client was connected on an answer that let nobody in")
			}
			// The next client needs a call of its own.
			asked := r.operator.count()
			expect(t, dialTCP(t, address), "hi")
			if r.operator.count() <= asked {
				t.Error("the next client woke nobody")
			}
		})
	}
}

func TestAnAwakeServiceIsRelayedWithoutAWakeCall(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, tag("hi"))
	r.backend(server, true)
	r.phase(v1alpha1.PhaseAwake)
	for range 3 {
		expect(t, dialTCP(t, address), "hi")
	}
	if n := r.operator.count(); n != 0 {
		t.Errorf("%d wake calls for a service that is awake", n)
	}
}

// A client who comes in the moment when a service falls asleep has it scaled up
// again, while the server from before is about to be ended and doesn't look so. The
// operator's answer may be faster than the status that says so.
func TestAServerThatMayBeEndedGetsNobody(t *testing.T) {
	for name, stays := range map[string]bool{"it is ended, and another one comes": false, "it stays": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			address := r.serve("game", route.TCP)
			old := freeAddress(t, route.TCP)
			listenTCP(t, old, tag("old "))
			r.backend(old, true)
			slept := time.Now().Add(-time.Hour)
			r.change(func(rt *route.Route) { rt.Phase, rt.LastSleep = v1alpha1.PhaseAwake, slept })
			before := dialTCP(t, address)
			expect(t, before, "old ")
			r.queued(0)
			asked := r.operator.count()

			slept = slept.Add(time.Hour)
			r.operator.set(func(w http.ResponseWriter, n int) {
				if n > asked+1 {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				w.WriteHeader(http.StatusAccepted)
				_ = json.NewEncoder(w).Encode(informerapi.WakeResponse{Phase: string(v1alpha1.PhaseWaking), Replicas: 1, LastSleepTime: &slept})
			})
			r.phase(v1alpha1.PhaseFallingAsleep)
			c := dialTCP(t, address)
			write(t, c, "x")
			r.queued(1)
			r.eventually("the operator is asked again, which fails", func() bool { return r.operator.count() > asked+1 })
			r.phase(v1alpha1.PhaseFallingAsleep) // nothing new
			r.never("somebody is sent to a server though the sleep isn't known", 300*time.Millisecond, func() bool { return r.sessions().Queued == 0 })
			// What the status says of the sleep, see package route.
			r.change(func(rt *route.Route) {
				rt.Phase, rt.LastSleep = v1alpha1.PhaseWaking, slept
				rt.Ports[0].Backends[0].Terminating = true
			})
			r.never("somebody is sent to the old server", 300*time.Millisecond, func() bool { return r.sessions().Queued == 0 })
			want := "old x"
			if stays {
				r.change(func(rt *route.Route) { rt.Ports[0].Backends[0].Terminating = false })
			} else {
				next := freeAddress(t, route.TCP)
				listenTCP(t, next, tag("new "))
				r.backend(next, true)
				want = "new x"
			}
			expect(t, c, want)
			// Who was there stays in any case.
			write(t, before, "y")
			expect(t, before, "y")
		})
	}
}

// An answer that comes before the wake is in the status lets nobody connect until it is: what the route shows may be
// from before a sleep that the operator hadn't seen either. Another answer may say more.
func TestNobodyIsConnectedBeforeTheRouteHasTheWake(t *testing.T) {
	for name, answered := range map[string]bool{"the route has it": false, "another answer comes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			woken := time.Now().Truncate(time.Microsecond)
			r.announces(woken, func() {})
			address := r.serve("game", route.TCP)
			server := freeAddress(t, route.TCP)
			listenTCP(t, server, echo)
			r.hasWake(woken.Add(-time.Minute))
			c := dialTCP(t, address)
			write(t, c, "x")
			r.queued(1)
			r.eventually("the operator is asked again, which fails", func() bool { return r.operator.count() > 1 })
			r.backend(server, true)
			r.never("somebody is sent to a server though the wake isn't known", 300*time.Millisecond, func() bool { return r.sessions().Queued == 0 })
			// It may be of an operator whose clock is ahead.
			r.hasWake(woken.Add(time.Minute))
			r.never("somebody is sent to a server though the wake isn't known", 300*time.Millisecond, func() bool { return r.sessions().Queued == 0 })
			if answered {
				r.operator.set(accept(v1alpha1.PhaseWaking))
			} else {
				r.hasWake(woken)
			}
			expect(t, c, "x")
		})
	}
}

// announces has the operator announce a wake once, before it is in the status, and then fail.
func (r *rig) announces(woken time.Time, first func()) {
	r.operator.set(func(w http.ResponseWriter, n int) {
		if n > 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		first()
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(informerapi.WakeResponse{Phase: string(v1alpha1.PhaseWaking), Replicas: 1, LastWakeTime: &woken})
	})
}

func (r *rig) hasWake(at time.Time) { r.change(func(rt *route.Route) { rt.LastWakeTime = at }) }

// The route may be faster than the answer, and has later wakes afterwards.
func TestAWakeThatTheRouteHadHoldsNobodyUp(t *testing.T) {
	for name, before := range map[string]bool{"before the answer": true, "and then another": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			woken := time.Now().Truncate(time.Microsecond)
			r.announces(woken, func() {
				if before {
					r.hasWake(woken)
				}
			})
			address := r.serve("game", route.TCP)
			server := freeAddress(t, route.TCP)
			listenTCP(t, server, echo)
			c := dialTCP(t, address)
			write(t, c, "x")
			r.eventually("the operator is asked again, which fails", func() bool { return r.operator.count() > 1 })
			if !before {
				r.hasWake(woken)
			}
			r.hasWake(woken.Add(time.Minute))
			r.backend(server, true)
			expect(t, c, "x")
		})
	}
}

// A route with the wake that was announced has each sleep before it, also one that it never showed.
func TestARouteWithAnAnnouncedWakeHasEachSleepBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	slept := time.Now().Truncate(time.Microsecond)
	woken := slept.Add(time.Second)
	r.operator.set(func(w http.ResponseWriter, n int) {
		answer := informerapi.WakeResponse{Phase: string(v1alpha1.PhaseWaking), Replicas: 1}
		switch n {
		case 1:
			answer.LastSleepTime = &slept
		case 2:
			answer.LastWakeTime = &woken
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(answer)
	})
	address := r.serve("game", route.TCP)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	c := dialTCP(t, address)
	write(t, c, "x")
	r.eventually("the operator is asked again, which fails", func() bool { return r.operator.count() > 2 })
	r.backend(server, true)
	r.change(func(rt *route.Route) { rt.LastWakeTime, rt.LastSleep = woken, slept.Add(time.Millisecond) })
	expect(t, c, "x")
}

// A wake that was announced and never written, since the operator ended, is forgotten with those who waited for it.
func TestAWakeThatIsNeverWrittenHoldsNoLaterClientUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.announces(time.Now().Truncate(time.Microsecond), func() {})
	address := r.serve("game", route.TCP)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	leaves := dialTCP(t, address)
	write(t, leaves, "x")
	r.eventually("the operator is asked again, which fails", func() bool { return r.operator.count() > 1 })
	_ = leaves.SetLinger(0)
	_ = leaves.Close()
	r.queued(0)
	r.phase(v1alpha1.PhaseAwake)
	r.backend(server, true)
	c := dialTCP(t, address)
	write(t, c, "y")
	expect(t, c, "y")
}
