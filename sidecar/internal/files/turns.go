package files

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// atOnce bounds the passwords that are looked at together: each costs a processor for a while.
const atOnce = 2

// turns gives those that want a password looked at their turns. A stranger with thousands of addresses can
// always have some of them wait, and so it matters who is next: see before. There are no more that wait than
// there are connections without a login.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []*turn
}

// turn is a password that waits.
type turn struct {
	// recent is set where somebody logged in from the address not long ago, and tries are the passwords
	// of it that are counted as wrong, with this one.
	recent bool
	tries  int
	// user is who it is said to be, there or not: by how long it takes nobody learns which.
	user string
	// come is closed when it may be looked at.
	come chan struct{}
}

func newTurns(atOnce int) *turns { return &turns{free: atOnce} }

// take waits for the turn of a password; false: its connection ended before. Else leave must be called once
// it was looked at.
func (t *turns) take(ctx context.Context, w *turn) bool {
	w.come = make(chan struct{})
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	t.waiting = append(t.waiting, w)
	t.mu.Unlock()
	select {
	case <-w.come:
		return true
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.waiting, w)
	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 {
		t.leave() // its turn has just come
	}
	return false
}

// leave ends a turn, and lets the next one come.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.free++
		return
	}
	// The newest of equals: where there are more than can be looked at, those that have waited for long
	// are about to be ended, and nobody would ever be in time.
	slices.Reverse(t.waiting)
	users := map[string]int{}
	for _, w := range t.waiting {
		users[w.user]++
	}
	next := slices.MinFunc(t.waiting, func(a, b *turn) int { return before(a, b, users) })
	t.waiting = slices.DeleteFunc(t.waiting, func(w *turn) bool { return w == next })
	slices.Reverse(t.waiting)
	close(next.come)
}

// before compares who is next: whose address is recent, then whose address has tried less, and then whose user fewer
// ask for.
func before(a, b *turn, users map[string]int) int {
	switch {
	case a.recent != b.recent && a.recent:
		return -1
	case a.recent != b.recent:
		return 1
	}
	return cmp.Or(cmp.Compare(a.tries, b.tries), cmp.Compare(users[a.user], users[b.user]))
}
