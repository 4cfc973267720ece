package report

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
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
	d := newDesk(time.Millisecond, takers)
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
			d.do(&d.newcomers, func() { deep(64) })
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

// Whatever else the process does would come after all of them.
func TestFewWorkAtADeskAtATime(t *testing.T) {
	const most, all = 4, 100
	d := newDesk(time.Millisecond, most)
	d.newcomers.patience = time.Minute
	var now, peak atomic.Int32
	began, goOn := make(chan struct{}), make(chan struct{})
	var done sync.WaitGroup
	for range all {
		done.Go(func() {
			d.do(&d.newcomers, func() {
				peak.Store(max(peak.Load(), now.Add(1)))
				began <- struct{}{}
				<-goOn
				now.Add(-1)
			})
		})
	}
	for range most {
		<-began
	}
	for range all - most {
		goOn <- struct{}{}
		<-began
	}
	close(goOn)
	done.Wait()
	if peak.Load() > most {
		t.Errorf("%d work at a time, want %d at most", peak.Load(), most)
	}
}

// Whose token is checked with keys that can't be read keeps nobody waiting for long.
func TestWorkDoesntWaitForLongForWorkThatHangs(t *testing.T) {
	d := newDesk(time.Millisecond, 1)
	d.newcomers.patience = 10 * time.Millisecond
	began, end := make(chan struct{}), make(chan struct{})
	var hangs sync.WaitGroup
	hangs.Go(func() { d.do(&d.newcomers, func() { close(began); <-end }) })
	<-began
	done := make(chan struct{})
	go d.do(&d.newcomers, func() { close(done) })
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("it waits though its patience is over")
	}
	close(end)
	hangs.Wait()
}

// Thousands that come at once are few at a time all the same: each waits for those before it.
func TestWhoWaitsHasPatienceForThoseBefore(t *testing.T) {
	d := newDesk(time.Millisecond, 1)
	for others, want := range map[int64]time.Duration{0: time.Second, 1: 1001 * time.Millisecond, 10_000: 4 * time.Second} {
		if got := d.newcomers.patienceFor(others); got != want {
			t.Errorf("after %d others it waits for %s, want %s", others, got, want)
		}
	}
	begun, end := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { d.do(&d.newcomers, func() { close(begun); <-end }) })
	<-begun
	for range 10 {
		all.Go(func() { d.do(&d.newcomers, func() {}) })
	}
	for began := time.Now(); d.newcomers.waiting.Load() != 10; <-time.After(time.Millisecond) {
		if time.Since(began) > within {
			t.Fatalf("%d wait, want 10", d.newcomers.waiting.Load())
		}
	}
	close(end)
	all.Wait()
	if n := d.newcomers.waiting.Load(); n != 0 {
		t.Errorf("%d wait in the end", n)
	}
}

// Who is asked whether a Server may be deleted now has a second to reply.
func TestRegularsDontStandBehindNewcomers(t *testing.T) {
	d := newDesk(time.Millisecond, 1)
	d.newcomers.patience = time.Minute
	begun, end := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { d.do(&d.newcomers, func() { close(begun); <-end }) })
	<-begun
	all.Go(func() { d.do(&d.newcomers, func() {}) })
	did := make(chan struct{})
	all.Go(func() { d.do(&d.regulars, func() { close(did) }) })
	select {
	case <-did:
	case <-time.After(within):
		t.Error("who was here before waits for one that has just come")
	}
	close(end)
	all.Wait()
}

// After a peak there is work all the time, of which each goroutine gets some before it is idle for long.
func TestADeskShrinksThoughItHasWork(t *testing.T) {
	const peak = 50
	d := newDesk(200*time.Millisecond, peak)
	before := runtime.NumGoroutine()
	var all, busy sync.WaitGroup
	busy.Add(peak)
	for range peak {
		all.Go(func() {
			d.do(&d.newcomers, func() {
				busy.Done()
				busy.Wait() // so that each has a goroutine of its own
			})
		})
	}
	all.Wait()
	for range 2 * peak * jobsEach {
		d.do(&d.newcomers, func() {})
	}
	// Where another process has the processor just after one has said that it is done, the next job finds none that
	// waits, and begins another.
	if left := runtime.NumGoroutine() - before; left > peak/5 {
		t.Errorf("%d goroutines are there for one job at a time, which %d had needed at once", left, peak)
	}
}

func TestAPanicIsTheCallers(t *testing.T) {
	d := newDesk(time.Millisecond, takers)
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "broken") || !strings.Contains(got, "raise") {
			t.Errorf("the caller panicked with %s, want what its work panicked with, and where", got)
		}
		done := false
		d.do(&d.newcomers, func() { done = true })
		if !done {
			t.Error("nothing is done after a panic")
		}
	}()
	d.do(&d.newcomers, func() { raise("broken") })
}

func raise(what string) { panic(what) }

func TestALineIsWorkedOffByFew(t *testing.T) {
	const jobs, most = 100, 3
	l := newLine(newDesk(time.Millisecond, takers), most)
	end := make(chan struct{})
	var all, busy sync.WaitGroup
	all.Add(jobs)
	busy.Add(most)
	var begun atomic.Int32
	for range jobs {
		l.add(func() {
			defer all.Done()
			if begun.Add(1) <= most {
				busy.Done()
			}
			<-end
		})
	}
	busy.Wait()
	left := func() (working, waiting int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.working, len(l.jobs)
	}
	if working, waiting := left(); working != most || waiting != jobs-most {
		t.Errorf("%d work and %d jobs wait, want %d and %d", working, waiting, most, jobs-most)
	}
	close(end)
	all.Wait()
	for began := time.Now(); ; <-time.After(time.Millisecond) {
		working, waiting := left()
		if working+waiting == 0 {
			return
		}
		if time.Since(began) > within {
			t.Fatalf("%d work and %d jobs wait in the end, want none", working, waiting)
		}
	}
}

func TestALineKeepsItsOrder(t *testing.T) {
	const jobs = 100
	l := newLine(newDesk(time.Millisecond, takers), 1)
	order := make(chan int, jobs)
	for i := range jobs {
		l.add(func() { order <- i })
	}
	for want := range jobs {
		if got := <-order; got != want {
			t.Fatalf("job %d was done before job %d", got, want)
		}
	}
}
