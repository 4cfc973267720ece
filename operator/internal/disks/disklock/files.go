package disklock

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// patience is how long a copy waits for Pods that serve files before their door is closed: most are
	// gone by themselves a minute after their last session.
	patience = 5 * time.Minute
	// renewal is how long what a copy said counts. The rarest of them look once a minute.
	renewal = 90 * time.Second
)

// turn is what copies said that wait for nothing but the Pods that serve a Server's files.
type turn struct {
	since, last time.Time
	// fresh is set while the copy that has the disks now has said it.
	fresh bool
}

func (w *turn) old(now time.Time) bool { return now.Sub(w.last) > renewal }

// WaitForFiles notes that a copy waits for nothing but Pods that serve a Server's files, and reports
// whether it has for long enough. Then their door is closed until it has had its turn, or has said
// nothing for a while. Copies that wait say so at least once a minute.
func (t *Table) WaitForFiles(server types.NamespacedName, now time.Time) (closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.turns[server]
	if w == nil || w.old(now) {
		maps.DeleteFunc(t.turns, func(_ types.NamespacedName, w *turn) bool { return w.old(now) })
		w = &turn{since: now}
		t.turns[server] = w
	}
	w.last, w.fresh = now, true
	return now.Sub(w.since) >= patience
}

// StartFiles begins to let a Pod have a Server's disks that serves its files. Unlike a game it gives
// nothing up: where a copy has the disks, or waits for its turn, it returns who. Else end must be called
// once the API server has let the Pod go on.
func (t *Table) StartFiles(server types.NamespacedName, now time.Time) (end func(), holder string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.turns[server]
	if w != nil && w.old(now) {
		delete(t.turns, server)
		w = nil
	}
	switch holder = t.held[server]; {
	case holder != "":
		return nil, holder
	case w != nil && now.Sub(w.since) >= patience:
		return nil, "A copy of the disks"
	}
	return t.begin(server), ""
}
