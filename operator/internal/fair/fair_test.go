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
