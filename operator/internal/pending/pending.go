// Package pending keeps a controller's own writes that the cache doesn't show yet. Without
// them a pass that comes before the cache has a write would plan as if it had never been
// made, and make it once more. The package knows neither clients nor kinds of objects.
package pending

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ForgottenAfter is when a write that never showed in the cache is taken for gone: somebody
// else undid it in the same moment.
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

// Writes are the pending ones, by the UIDs of their objects. An object's last write stands
// for those before it.
type Writes[W any] map[types.UID]Write[W]

// Add remembers a write.
func (w Writes[W]) Add(uid types.UID, kind Kind, at time.Time, object W) {
	w[uid] = Write[W]{Object: object, At: at, Kind: kind}
}

// Overlay says how pending writes W are laid over objects O as a cache shows them.
type Overlay[O, W any] struct {
	// UID is an object's.
	UID func(*O) types.UID
	// Merge lays a write over its object, and reports whether the cache doesn't show that
	// write yet.
	Merge func(*O, Write[W]) bool
	// Unseen is an object that the cache doesn't show at all.
	Unseen func(W) O
	// Expire is whether a write that isn't shown is forgotten after ForgottenAfter, too,
	// where the cache shows its object.
	Expire bool
}

// Over lays the writes over what the cache shows and forgets those that it shows. It
// returns after how long one must be looked at again; 0 for never.
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
