// Package fair shares out permits for slow work, such as asking pods, so that one who has much
// of it doesn't keep others waiting for long.
package fair

import (
	"context"
	"slices"
	"sync"
)

// Permits bound how much work is done at once. All who wait for one take turns, however many
// each of them waits for. The zero value has none.
type Permits struct {
	most, each int

	mu   sync.Mutex
	used int
	all  map[string]*share
	// turns are the shares that wait and may have a permit, in order.
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

// Acquire waits for a permit for who. An error is the context's, and then there is no permit.
func (p *Permits) Acquire(ctx context.Context, who string) error {
	p.mu.Lock()
	s := p.all[who]
	if s == nil {
		s = &share{name: who}
		p.all[who] = s
	}
	granted := make(chan struct{})
	s.waiting = append(s.waiting, granted)
	p.queue(s)
	p.grant()
	p.mu.Unlock()
	select {
	case <-granted:
		return nil
	default:
	}
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(s.waiting, granted); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		p.forget(s)
	} else {
		p.giveBack(s)
	}
	return ctx.Err()
}

// Release gives a permit back.
func (p *Permits) Release(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveBack(p.all[who])
}

func (p *Permits) giveBack(s *share) {
	s.used--
	p.used--
	p.queue(s)
	p.grant()
	p.forget(s)
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
