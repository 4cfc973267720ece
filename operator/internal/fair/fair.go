// Package fair shares out permits for slow work, such as asking pods, so that one who has much
// of it doesn't keep others waiting for long.
package fair

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// ErrFull means that too many wait for a permit.
var ErrFull = errors.New("too many wait for their turn")

// Permits bound how much work is done at once. All who wait for one take turns, however many
// each of them waits for.
type Permits struct {
	most, each int
	// mayWait bounds how many wait, and mayWaitOfEach how many of each; there is no bound where mayWait is 0.
	mayWait, mayWaitOfEach int

	mu   sync.Mutex
	used int
	// waiting are how many wait.
	waiting int
	all     map[string]*share
	// turns are the shares that wait and may have a permit, in order. There are none while one is left.
	turns []*share
}

// share is how many permits one has and waits for.
type share struct {
	name    string
	used    int
	waiting []chan struct{}
	// queued is set while it is among the turns.
	queued bool
}

// New makes permits for most pieces of work at once, and for so many of each.
func New(most, each int) *Permits {
	return &Permits{most: most, each: each, all: map[string]*share{}}
}

// Bounded are permits for which no more than so many wait, and so many of each.
func (p *Permits) Bounded(waiting, ofEach int) *Permits {
	p.mayWait, p.mayWaitOfEach = waiting, ofEach
	return p
}

// Acquire waits for a permit for who. An error is ErrFull or the context's, and then there is no permit.
func (p *Permits) Acquire(ctx context.Context, who string) error {
	p.mu.Lock()
	s := p.all[who]
	if s == nil {
		s = &share{name: who}
		p.all[who] = s
	}
	// Where there is one left nobody waits who may have it.
	if p.used < p.most && s.used < p.each {
		s.used++
		p.used++
		p.mu.Unlock()
		return nil
	}
	if p.mayWait > 0 && (p.waiting >= p.mayWait || len(s.waiting) >= p.mayWaitOfEach) {
		p.forget(s)
		p.mu.Unlock()
		return ErrFull
	}
	granted := make(chan struct{})
	s.waiting = append(s.waiting, granted)
	p.waiting++
	p.queue(s)
	p.mu.Unlock()
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	i := slices.Index(s.waiting, granted)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		p.waiting--
		p.forget(s)
	}
	p.mu.Unlock()
	if i < 0 {
		p.Release(who) // it came meanwhile
	}
	return ctx.Err()
}

// Release gives a permit back.
func (p *Permits) Release(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.all[who]
	s.used--
	p.used--
	if p.waiting+len(p.turns) > 0 {
		p.queue(s)
		p.grant()
	}
	if s.used == 0 && len(s.waiting) == 0 && !s.queued {
		delete(p.all, who)
	}
}

// Len is how many wait, and how many have a permit or wait for one.
func (p *Permits) Len() (waiting, shares int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting, len(p.all)
}

// queue gives a share a turn if it waits and may have more.
func (p *Permits) queue(s *share) {
	if !s.queued && len(s.waiting) > 0 && s.used < p.each {
		s.queued = true
		p.turns = append(p.turns, s)
	}
}

// grant gives permits to the shares whose turn it is.
func (p *Permits) grant() {
	for p.used < p.most && len(p.turns) > 0 {
		s := p.turns[0]
		p.turns = p.turns[1:]
		s.queued = false
		if len(s.waiting) == 0 {
			p.forget(s)
			continue
		}
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
		p.waiting--
		s.used++
		p.used++
		p.queue(s)
	}
}

// forget removes a share that has nothing and waits for nothing.
func (p *Permits) forget(s *share) {
	if s.used == 0 && len(s.waiting) == 0 && !s.queued {
		delete(p.all, s.name)
	}
}
