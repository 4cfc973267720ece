package report

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// idleTime is how long one of a desk's goroutines waits for more to do.
	idleTime = 10 * time.Second
	// jobsEach is how much one does. They take turns, so that after a peak none would ever wait for long.
	jobsEach = 1000
	// patience is for how long work waits for work that came before it, besides turnTime for each that waits, too:
	// some work takes long, and most takes less.
	patience = time.Second
	turnTime = time.Millisecond
	// mostTurns bounds that: both are less than what a sidecar allows beside the time for which its report is held.
	mostTurns = 3 * time.Second
)

// desk does short work on goroutines of its own, of which there are as many as work at a time. A
// goroutine's stack never gets smaller than four times what is in use of it, and a replica holds
// thousands of connections, each with a goroutine while no report is held on it: so those do nothing that
// needs a large one.
type desk struct {
	work chan job
	idle time.Duration
	// newcomers are sidecars that have just connected, and regulars those that have reported on their connection
	// before: who is asked whether a Server may be deleted now doesn't stand behind thousands that come at once.
	newcomers, regulars lane
}

// lane is where work waits for work that came before it.
type lane struct {
	// places has one for each whose work is done, and waiting counts those that wait for one. Patience is for how
	// long each does at least before it goes ahead.
	places   chan struct{}
	waiting  atomic.Int64
	patience time.Duration
}

type job struct {
	do   func()
	done chan error // gets what it panicked with, and where, or nil
}

// newDesk makes one at which so many of each lane have work done for them at a time.
func newDesk(idle time.Duration, most int) *desk {
	return &desk{
		work: make(chan job), idle: idle,
		newcomers: lane{places: make(chan struct{}, most), patience: patience}, regulars: lane{places: make(chan struct{}, most), patience: patience},
	}
}

// do has something done, and waits for that. It is done once there are few others of its lane, or after patience:
// thousands of sidecars that come at once, when their replica has ended, would have everything else of the process
// wait for all of them. A panic is the caller's.
func (d *desk) do(l *lane, f func()) {
	if l.admitted() {
		defer func() { <-l.places }()
	}
	if panicked := <-d.begin(f); panicked != nil {
		panic(panicked) //nolint:forbidigo // who serves the call recovers it, as if it had done the work
	}
}

// admitted waits until there are few others, and reports whether there are: those may be tokens of strangers, each
// of which waits until the cluster's keys are read.
func (l *lane) admitted() bool {
	select {
	case l.places <- struct{}{}:
		return true
	default:
	}
	others := l.waiting.Add(1) - 1
	defer l.waiting.Add(-1)
	late := time.NewTimer(l.patienceFor(others))
	defer late.Stop()
	select {
	case l.places <- struct{}{}:
		return true
	case <-late.C:
		return false
	}
}

// patienceFor is for how long work waits after so many others that wait.
func (l *lane) patienceFor(others int64) time.Duration {
	return l.patience + min(time.Duration(others)*turnTime, mostTurns)
}

// begin has something done, and doesn't wait for that.
func (d *desk) begin(f func()) (done <-chan error) {
	j := job{do: f, done: make(chan error, 1)}
	select {
	case d.work <- j:
	default:
		go d.serve(j)
	}
	return j.done
}

// serve does a job, and then others, until none comes for some time or it has done its share.
func (d *desk) serve(j job) {
	idle := time.NewTimer(d.idle)
	defer idle.Stop()
	for did := 1; ; did++ {
		j.run()
		if did == jobsEach {
			return
		}
		idle.Reset(d.idle)
		select {
		case j = <-d.work:
		case <-idle.C:
			return
		}
	}
}

func (j job) run() {
	defer func() {
		var err error
		if value := recover(); value != nil {
			err = fmt.Errorf("%v, at\n%s", value, debug.Stack())
		}
		j.done <- err
	}()
	j.do()
}

// line has work done at a desk in the order in which it came, by few at a time, for those who don't wait
// for it. It must recover from its own panics.
type line struct {
	desk *desk
	most int

	mu      sync.Mutex
	jobs    []func()
	working int
}

func newLine(d *desk, most int) *line { return &line{desk: d, most: most} }

// add has something done. It doesn't wait.
func (l *line) add(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs = append(l.jobs, f)
	if l.working < l.most {
		l.working++
		l.desk.begin(l.work)
	}
}

// work does what is there.
func (l *line) work() {
	for f := l.next(); f != nil; f = l.next() {
		f()
	}
}

// next is what comes next; nil: there is nothing, and one fewer works.
func (l *line) next() (f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.jobs) == 0 {
		l.jobs = nil
		l.working--
		return nil
	}
	f, l.jobs[0] = l.jobs[0], nil
	l.jobs = l.jobs[1:]
	return f
}
