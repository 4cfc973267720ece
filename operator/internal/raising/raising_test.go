package raising

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// begin begins a raise whose turn comes at once.
func begin(t *testing.T, r *Raises, namespace string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	end, err := r.Begin(ctx, namespace)
	if err != nil {
		t.Fatalf("a raise in %s has no turn: %v", namespace, err)
	}
	return end
}

// wakes are raises that take a while each, in the order in which their turns came.
type wakes struct {
	r *Raises

	mu    sync.Mutex
	turns []string
	all   sync.WaitGroup
}

// call begins a raise, which takes so long, and waits until it is queued or its turn has come.
func (w *wakes) call(t *testing.T, namespace, name string, takes time.Duration) {
	t.Helper()
	w.all.Go(func() {
		end, err := w.r.Begin(t.Context(), namespace)
		if err != nil {
			t.Error(err)
			return
		}
		defer end()
		w.mu.Lock()
		w.turns = append(w.turns, name)
		w.mu.Unlock()
		<-time.After(takes)
	})
	synctest.Wait()
}

// Of 500 wakes of 20 namespaces within a second each has its turn in the order of its namespace, and no
// more are scaled at once than there are turns.
func TestEachRaiseOfAStormHasItsTurnInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wakes{r: New()}
		began := time.Now()
		for i := range 500 {
			w.call(t, fmt.Sprint(i%20), fmt.Sprintf("%d/%03d", i%20, i), 100*time.Millisecond)
			if got := w.r.turnsTaken(); got > atOnce {
				t.Fatalf("%d targets are scaled at once, want %d at most", got, atOnce)
			}
			<-time.After(2 * time.Millisecond)
		}
		w.all.Wait()
		if took, want := time.Since(began), 500*100*time.Millisecond/atOnce+100*time.Millisecond; took > want {
			t.Errorf("they were done after %s, want %s, with no turn left unused", took, want)
		}
		of := map[string][]string{}
		for _, turn := range w.turns {
			namespace := turn[:len(turn)-4]
			of[namespace] = append(of[namespace], turn)
		}
		for namespace, turns := range of {
			if !slices.IsSorted(turns) {
				t.Errorf("the turns of namespace %s were %q", namespace, turns)
			}
		}
		w.r.wantEmpty(t)
	})
}

// turnsTaken is how many have their turn.
func (r *Raises) turnsTaken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting, _ := r.turns.Len()
	return int(r.under.Load()) - waiting
}

func (r *Raises) wantEmpty(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if waiting, shares := r.turns.Len(); r.under.Load() != 0 || waiting != 0 || shares != 0 || r.over != nil {
		t.Errorf("in the end %d raises are under way and %d are queued, of %d namespaces", r.under.Load(), waiting, shares)
	}
}

// A namespace with as many wakes as it likes leaves turns to others, and the queue is shared.
func TestANamespacesManyRaisesDoNotHoldUpAnothers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wakes{r: New()}
		for range 400 {
			w.call(t, "many", "many", 100*time.Millisecond)
		}
		for range atOnce - ofNamespace {
			w.call(t, "first", "first", 100*time.Millisecond)
		}
		if got := w.r.turnsTaken(); got != atOnce {
			t.Errorf("%d have their turn, want %d: those of the second namespace at once", got, atOnce)
		}
		w.call(t, "late", "late", 0)
		<-time.After(100 * time.Millisecond)
		synctest.Wait()
		if w.mu.Lock(); !slices.Contains(w.turns, "late") {
			t.Errorf("after %d turns a third namespace has had none", len(w.turns))
		}
		w.mu.Unlock()
		w.all.Wait()
	})
}

// A raise that hangs gives its turn to the next once, and counts no more.
func TestARaiseThatHangsHoldsUpOthersForHalfASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New()
		var ends []func()
		for range ofNamespace {
			ends = append(ends, begin(t, r, "hangs"))
		}
		began := time.Now()
		next, err := r.Begin(t.Context(), "hangs")
		if took := time.Since(began); err != nil || took != longest {
			t.Fatalf("the next turn came after %s, %v; want %s", took, err, longest)
		}
		for _, end := range ends {
			end()
		}
		if got := r.turnsTaken(); got != 1 {
			t.Errorf("after those that hung have ended %d count, want the one that doesn't", got)
		}
		next()
		next()
		r.wantEmpty(t)
		for range ofNamespace {
			begin(t, r, "hangs")
		}
		if got := r.turnsTaken(); got != ofNamespace {
			t.Errorf("%d have a turn, want %d again", got, ofNamespace)
		}
		<-time.After(longest)
	})
}

// A raise that waits for its turn counts, and the half second begins with the turn.
func TestARaiseCountsWhileItWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wakes{r: New()}
		for range 3 * ofNamespace {
			w.call(t, "games", "games", 400*time.Millisecond)
		}
		began := time.Now()
		w.r.Wait(t.Context(), Patient)
		if took := time.Since(began); took != 1200*time.Millisecond {
			t.Errorf("work waited for %s, want until the last of three turns of 400 ms was over", took)
		}
		w.all.Wait()
	})
}

func TestWhoGivesUpWaitingLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New()
		var ends []func()
		for range ofNamespace {
			ends = append(ends, begin(t, r, "games"))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := r.Begin(ctx, "games"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the time was over", err)
		}
		if waiting, _ := r.turns.Len(); waiting != 0 || r.under.Load() != ofNamespace {
			t.Errorf("%d are queued and %d under way, want none and %d", waiting, r.under.Load(), ofNamespace)
		}
		for _, end := range ends {
			end()
		}
		r.wantEmpty(t)
	})
}

// The queue is bounded, and no namespace takes all of it.
func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var full atomic.Int32
		call := func(namespace string, times int) {
			for range times {
				all.Go(func() {
					if _, err := r.Begin(ctx, namespace); errors.Is(err, ErrFull) {
						full.Add(1)
					}
				})
			}
			synctest.Wait()
		}
		call("many", ofNamespace)
		call("many", maxQueuedOfNamespace+5)
		if got := full.Load(); got != 5 {
			t.Errorf("%d raises of one namespace are refused, want 5", got)
		}
		for i := range maxQueued / maxQueuedOfNamespace {
			call(fmt.Sprint(i), maxQueuedOfNamespace)
		}
		if waiting, _ := r.turns.Len(); waiting != maxQueued {
			t.Errorf("%d are queued, want %d", waiting, maxQueued)
		}
		cancel()
		all.Wait()
		<-time.After(longest)
		synctest.Wait()
		r.wantEmpty(t)
	})
}

func TestWithoutRaisesNothingWaits(t *testing.T) {
	t.Parallel()
	var r *Raises
	end, err := r.Begin(t.Context(), "games")
	if err != nil {
		t.Fatal(err)
	}
	end()
	r.Wait(t.Context(), Patient)
	if again := r.Again(Patient, 0); again != 0 {
		t.Errorf("work is to come again after %s", again)
	}
}
