// Package pending keeps a controller's own writes that the cache doesn't show yet. Without them
// a pass that comes before the cache is current would plan as if they had never happened, and
// repeat them. The package knows neither clients nor kinds of objects.
package pending

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ForgottenAfter is when a write that never showed in the cache is dropped: somebody else undid
// it at the same time.
const ForgottenAfter = time.Minute

// Kind is what a write did to its object.
type Kind int

// The kinds of writes.
const (
	Create Kind = iota
	Change
	Delete
)

// Write is one write. Object is what the API server returned.
type Write[W any] struct {
	Object W
	At     time.Time
	Kind   Kind
}

// Writes are the pending writes, by the UIDs of their objects. An object's last write replaces
// the earlier ones.
type Writes[W any] map[types.UID]Write[W]

// Overlay defines how pending writes W are laid over objects O from the cache.
type Overlay[O, W any] struct {
	// UID is an object's UID.
	UID func(*O) types.UID
	// Merge lays a write over its object, and reports whether the cache doesn't show that
	// write yet.
	Merge func(*O, Write[W]) bool
	// Unseen is an object that the cache doesn't show at all.
	Unseen func(W) O
	// Expire is set where a write that isn't shown is dropped after ForgottenAfter even if the
	// cache shows its object.
	Expire bool
}

// Over lays the writes over the cached objects and drops those that the cache shows. It returns
// after how long to look again; 0 for never.
func (l Overlay[O, W]) Over(writes Writes[W], now time.Time, objects []O) (all []O, requeueAfter time.Duration) {
	shown := make(map[types.UID]bool, len(writes))
	for i := range objects {
		uid := l.UID(&objects[i])
		own, ok := writes[uid]
		if !ok {
			continue
		}
		shown[uid] = true
		if l.Expire && now.Sub(own.At) >= ForgottenAfter || !l.Merge(&objects[i], own) {
			delete(writes, uid)
		}
	}
	for uid, own := range writes {
		left := ForgottenAfter - now.Sub(own.At)
		switch {
		case shown[uid]:
			if !l.Expire {
				continue
			}
		case own.Kind == Create && left > 0:
			objects = append(objects, l.Unseen(own.Object))
		default:
			delete(writes, uid)
			continue
		}
		if requeueAfter == 0 || left < requeueAfter {
			requeueAfter = left
		}
	}
	return objects, requeueAfter
}
