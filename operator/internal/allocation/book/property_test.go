package book_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// over is a sentence about a Server that more have than may, in the book or in the store; empty: none
// is.
func (w *world) over() string {
	type use struct{ wholes, places int }
	uses := map[string]use{}
	for _, a := range w.stored {
		if a.Status.State != v1alpha1.AllocationAllocated {
			continue
		}
		s := w.servers[a.Status.ServerName]
		if s == nil || string(s.UID) != a.Status.ServerUID || s.Status.Game == nil || s.Status.Game.PodUID != a.Status.PodUID {
			continue // it is gone, and the Allocation learns it
		}
		u := uses[s.Name]
		if u.places += int(a.Spec.Players); a.Spec.Players == 0 {
			u.wholes++
		}
		uses[s.Name] = u
	}
	for name, u := range uses {
		if u.wholes > 1 || u.wholes == 1 && u.places > 0 || u.places > 10 {
			return fmt.Sprintf("%d have all of Server %s, and others %d places of 10", u.wholes, name, u.places)
		}
		if h := w.HolderOf("games", name, w.servers[name].UID); !h.Any() {
			return fmt.Sprintf("Server %s is had, and the book doesn't know", name)
		}
	}
	return ""
}

func TestNothingIsEverGivenTwice(t *testing.T) {
	for seed := range uint64(100) {
		chance := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t)
		made := 0
		for step := range 300 {
			w.happens(chance, &made)
			if why := w.over(); why != "" {
				t.Fatalf("seed %d, step %d: %s", seed, step, why)
			}
		}
		w.settles(t, seed)
	}
}

// happens has one thing happen, by chance.
func (w *world) happens(chance *rand.Rand, made *int) {
	server := fmt.Sprint("s", chance.IntN(6))
	switch chance.IntN(14) {
	case 0, 1, 2, 3:
		*made++
		w.ask(fmt.Sprint("a", *made), places(int32(chance.IntN(3)*chance.IntN(5))), waits(time.Duration(chance.IntN(3))*20*time.Second), ttl(time.Duration(chance.IntN(2))*time.Minute),
			func(s *v1alpha1.AllocationSpec) {
				if chance.IntN(2) == 0 {
					distributed(s)
				}
			})
	case 4, 5:
		for key := range w.decided {
			w.write(key.Name)
			break
		}
	case 6:
		for name := range w.stored {
			w.delete(name)
			break
		}
	case 7:
		w.server(server)
	case 8:
		if w.servers[server] != nil {
			w.deleteServer(server)
		}
	case 9:
		w.server(server, func(s *v1alpha1.Server) { s.Spec.Drain = !s.Spec.Drain })
	case 10:
		w.server(server, func(s *v1alpha1.Server) {
			if s.Status.Game = nil; chance.IntN(2) == 0 {
				s.Status.Game = &v1alpha1.GameStatus{State: v1alpha1.GameReady, PodUID: w.next()}
			}
		})
	case 11:
		w.passes(time.Duration(chance.IntN(20)) * time.Second)
	case 12:
		w.service([]v1alpha1.Phase{v1alpha1.PhaseAwake, v1alpha1.PhaseFallingAsleep, v1alpha1.PhaseAsleep}[chance.IntN(3)])
	default:
		if chance.IntN(5) == 0 {
			w.restart()
		} else {
			w.Withdraw(namespace, server)
		}
	}
}

// settles has all Servers be Ready: nobody who fits waits on, and with all Allocations gone each Server
// is free.
func (w *world) settles(t *testing.T, seed uint64) {
	t.Helper()
	w.service(v1alpha1.PhaseAwake)
	w.passes(20 * time.Second)
	w.writeAll()
	for i := range 6 {
		w.server(fmt.Sprint("s", i), func(s *v1alpha1.Server) {
			s.Spec.Drain = false
			s.Status.Game = &v1alpha1.GameStatus{State: v1alpha1.GameReady, PodUID: w.next()}
		})
	}
	w.writeAll()
	for name := range w.stored {
		w.delete(name)
	}
	if n := w.Pending(); n != 0 {
		t.Fatalf("seed %d: %d wait that are gone", seed, n)
	}
	if u := w.UseOf(namespace, "GameType", "duel"); u.By != "" {
		t.Fatalf("seed %d: %s", seed, u.By)
	}
	for i := range 6 {
		w.ask(fmt.Sprint("last", i))
	}
	w.writeAll()
	for i := range 6 {
		if a := w.stored[fmt.Sprint("last", i)]; a.Status.State != v1alpha1.AllocationAllocated {
			t.Fatalf("seed %d: a Server isn't free that nobody has: %s", seed, w.is(a.Name))
		}
	}
}
