package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"dormouse.dev/dormouse/test/env"
)

const (
	sampleInterval = 5 * time.Second
	scrapeTime     = 3 * time.Second
)

// Watcher keeps what the programs say of themselves, process by process.
type Watcher struct {
	mu    sync.Mutex
	lives []*Life
}

// Watch samples until the context ends. A pod that doesn't answer has no sample
// then: it may be cut off, or paused.
func (m *Watcher) Watch(ctx context.Context, e *env.Env) {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		for _, program := range []string{env.Operator, env.Resolver} {
			scraping, cancel := context.WithTimeout(ctx, scrapeTime)
			processes, err := e.Processes(scraping, program)
			cancel()
			if err != nil {
				continue // The API server is away.
			}
			for _, p := range processes {
				m.add(program, p, time.Now())
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (m *Watcher) add(program string, p env.Process, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.lives, func(l *Life) bool { return l.Pod == p.Pod && l.Started == p.Started })
	if i < 0 {
		m.lives = append(m.lives, &Life{Program: program, Pod: p.Pod, Started: p.Started})
		i = len(m.lives) - 1
	}
	m.lives[i].Samples = append(m.lives[i].Samples, Sample{At: now, Resident: p.Resident, Heap: p.Heap, Goroutines: p.Goroutines, FDs: p.FDs})
}

// All gives what was seen so far.
func (m *Watcher) All() []Life {
	m.mu.Lock()
	defer m.mu.Unlock()
	lives := make([]Life, len(m.lives))
	for i, l := range m.lives {
		lives[i] = *l
	}
	return lives
}
