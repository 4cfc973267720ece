package fair

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestOnesMuchWorkDoesNotKeepAnotherWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(4, 4)
		work := func(who string) {
			if err := p.Acquire(t.Context(), who); err != nil {
				t.Error(err)
				return
			}
			defer p.Release(who)
			<-time.After(time.Second)
		}
		var slow sync.WaitGroup
		for range 100 {
			slow.Go(func() { work("slow") })
		}
		synctest.Wait()
		began := time.Now()
		var others sync.WaitGroup
		for _, who := range []string{"a", "b", "c"} {
			others.Go(func() { work(who) })
		}
		others.Wait()
		// One second until the first permit is free, and one for their own work.
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("three who wait for one permit each were done after %s, want 2 s", took)
		}
		slow.Wait()
		if p.used != 0 || len(p.all) != 0 || len(p.turns) != 0 {
			t.Errorf("in the end %d are used, %d shares are known and %d have turns", p.used, len(p.all), len(p.turns))
		}
	})
}

func TestThereAreNeverMorePermitsThanThatInAllAndForEach(t *testing.T) {
	t.Parallel()
	const most, each = 5, 3
	p := New(most, each)
	var inAll, tooMany atomic.Int32
	var of [4]atomic.Int32
	var group sync.WaitGroup
	for i := range 400 {
		group.Go(func() {
			who := i % len(of)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
			defer cancel()
			if p.Acquire(ctx, string(rune('a'+who))) != nil {
				return
			}
			if inAll.Add(1) > most || of[who].Add(1) > each {
				tooMany.Add(1)
			}
			<-time.After(time.Millisecond)
			inAll.Add(-1)
			of[who].Add(-1)
			p.Release(string(rune('a' + who)))
		})
	}
	group.Wait()
	if n := tooMany.Load(); n > 0 {
		t.Errorf("%d times there were too many", n)
	}
	if p.used != 0 || len(p.all) != 0 {
		t.Errorf("in the end %d are used and %d shares are known", p.used, len(p.all))
	}
}

// What is left in all is for others than one who has as many as each may have.
func TestWhoHasAllOfHisPermitsWaitsThoughOthersAreLeft(t *testing.T) {
	t.Parallel()
	p := New(5, 3)
	for i := range 3 {
		if err := p.Acquire(t.Context(), "a"); err != nil {
			t.Fatalf("permit %d: %v", i+1, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Acquire(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("the fourth permit: %v, want that it was waited for", err)
	}
	if err := p.Acquire(ctx, "b"); err != nil {
		t.Errorf("another one's: %v, want it at once", err)
	}
}

func TestWhoGivesUpWaitingHasNoPermit(t *testing.T) {
	t.Parallel()
	p := New(1, 1)
	if err := p.Acquire(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Acquire(ctx, "b"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	p.Release("a")
	if err := p.Acquire(t.Context(), "c"); err != nil || p.used != 1 || len(p.all) != 1 {
		t.Errorf("got %v, with %d used and %d known", err, p.used, len(p.all))
	}
}

// Who gives up while others have all permits leaves none unused.
func TestAfterAllGaveUpThePermitIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 1)
		if err := p.Acquire(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var gaveUp sync.WaitGroup
		for _, who := range []string{"b", "c", "c"} {
			gaveUp.Go(func() { _ = p.Acquire(ctx, who) })
		}
		synctest.Wait()
		cancel()
		gaveUp.Wait()
		p.Release("a")
		if p.waiting != 0 || len(p.turns) != 0 || len(p.all) != 0 {
			t.Errorf("%d wait, %d have turns and %d shares are known; want none", p.waiting, len(p.turns), len(p.all))
		}
		bounded, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if err := p.Acquire(bounded, "d"); err != nil {
			t.Errorf("the next one has no permit: %v", err)
		}
	})
}

// A bounded queue refuses who comes beyond it, of one or of all, and nobody else.
func TestWhoWaitsIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 1).Bounded(5, 3)
		if err := p.Acquire(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var full atomic.Int32
		for _, c := range []struct {
			who         string
			times, want int
		}{{"a", 4, 1}, {"b", 2, 1}, {"c", 3, 4}} {
			for range c.times {
				all.Go(func() {
					if errors.Is(p.Acquire(ctx, c.who), ErrFull) {
						full.Add(1)
					}
				})
			}
			synctest.Wait()
			if got := int(full.Load()); got != c.want {
				t.Errorf("after %d calls of %s %d are refused, want %d", c.times, c.who, got, c.want)
			}
		}
		cancel()
		all.Wait()
		p.Release("a")
		if p.waiting != 0 || len(p.all) != 0 {
			t.Errorf("in the end %d wait, and %d shares are known", p.waiting, len(p.all))
		}
	})
}
