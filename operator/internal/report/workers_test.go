package report

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// deep needs a stack of some 64 KiB.
func deep(n int) (sum byte) {
	var much [1 << 10]byte
	for i := range much {
		much[i] = byte(i + n)
	}
	if n > 0 {
		sum = deep(n - 1)
	}
	return sum + much[n]
}

func TestWhoWaitsKeepsNoLargeStack(t *testing.T) {
	const waiters = 500
	d := newDesk(time.Millisecond)
	stacks := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.StackInuse
	}
	before := stacks()
	end := make(chan struct{})
	var did, ended sync.WaitGroup
	for range waiters {
		did.Add(1)
		ended.Go(func() {
			d.do(func() { deep(64) })
			did.Done()
			<-end
		})
	}
	did.Wait()
	each := (stacks() - before) / waiters
	close(end)
	ended.Wait()
	if each > 8<<10 {
		t.Errorf("each that waits has a stack of %d bytes, want 8 KiB at most", each)
	}
}

// After a peak there is work all the time, of which each goroutine gets some before it is idle for long.
func TestADeskShrinksThoughItHasWork(t *testing.T) {
	const peak = 50
	d := newDesk(200 * time.Millisecond)
	before := runtime.NumGoroutine()
	var all, busy sync.WaitGroup
	busy.Add(peak)
	for range peak {
		all.Go(func() {
			d.do(func() {
				busy.Done()
				busy.Wait() // so that each has a goroutine of its own
			})
		})
	}
	all.Wait()
	for range 2 * peak * jobsEach {
		d.do(func() {})
	}
	if left := runtime.NumGoroutine() - before; left > 2 {
		t.Errorf("%d goroutines are there for one job at a time, which %d had needed at once", left, peak)
	}
}

func TestAPanicIsTheCallers(t *testing.T) {
	d := newDesk(time.Millisecond)
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "broken") || !strings.Contains(got, "raise") {
			t.Errorf("the caller panicked with %s, want what its work panicked with, and where", got)
		}
		done := false
		d.do(func() { done = true })
		if !done {
			t.Error("nothing is done after a panic")
		}
	}()
	d.do(func() { raise("broken") })
}

func raise(what string) { panic(what) }
