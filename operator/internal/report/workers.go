package report

import (
	"fmt"
	"runtime/debug"
	"time"
)

const (
	// idleTime is how long one of a desk's goroutines waits for more to do.
	idleTime = 10 * time.Second
	// jobsEach is how much one does. They take turns, so that after a peak none would ever wait for long.
	jobsEach = 1000
)

// desk does short work on goroutines of its own, of which there are as many as work at a time. A
// goroutine's stack never gets smaller than four times what is in use of it, and a replica holds
// thousands of reports, each with a goroutine: so those do nothing that needs a large one.
type desk struct {
	work chan job
	idle time.Duration
}

type job struct {
	do   func()
	done chan error // gets what it panicked with, and where, or nil
}

func newDesk(idle time.Duration) *desk { return &desk{work: make(chan job), idle: idle} }

// do has something done, and waits for that. A panic is the caller's.
func (d *desk) do(f func()) {
	j := job{do: f, done: make(chan error, 1)}
	select {
	case d.work <- j:
	default:
		go d.serve(j)
	}
	if panicked := <-j.done; panicked != nil {
		panic(panicked) //nolint:forbidigo // who serves the call recovers it, as if it had done the work
	}
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
