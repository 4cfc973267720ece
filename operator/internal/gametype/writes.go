package gametype

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// forgetWrite is when a write that never showed in the cache is taken for
// overwritten: somebody else undid it in the same moment.
const forgetWrite = time.Minute

// writes are the GameType's own writes that the cache doesn't show yet, by the
// Fleets' UIDs. Without them a pass that comes before the cache has them would
// take for granted what isn't so any more.
type writes map[types.UID]write

type write struct {
	// fleet is as the API server returned it, and template its template.
	fleet    fleet
	template v1alpha1.ServerTemplate
	at       time.Time
	kind     writeKind
}

type writeKind int

const (
	wroteCreate writeKind = iota
	wroteChange
	wroteDelete
)

// add remembers a write. One of a Fleet that the cache has never shown stays one
// that made it.
func (w writes) add(at time.Time, kind writeKind, f fleet, template v1alpha1.ServerTemplate) {
	if before, ok := w[f.uid]; ok && before.kind == wroteCreate && kind == wroteChange {
		kind = wroteCreate
	}
	w[f.uid] = write{fleet: f, template: template, at: at, kind: kind}
}

// over lays the writes over what the cache shows and forgets those that it shows.
// isCurrent says whether a template is the GameType's: it may have changed since. It
// returns when one must be looked at again; 0 for never.
func (w writes) over(now time.Time, fleets []fleet, isCurrent func(v1alpha1.ServerTemplate, sentTemplate) bool) ([]fleet, time.Duration) {
	shown := make(map[types.UID]bool, len(w))
	for i := range fleets {
		f := &fleets[i]
		own, ok := w[f.uid]
		if !ok {
			continue
		}
		shown[f.uid] = true
		switch {
		case now.Sub(own.at) >= forgetWrite:
			delete(w, f.uid)
		case own.kind == wroteDelete && !f.deleting:
			f.deleting = true
		case own.kind != wroteDelete && !f.shows(own.fleet):
			f.desired, f.number, f.retiringSince, f.unlike = own.fleet.desired, own.fleet.number, own.fleet.retiringSince, own.fleet.unlike
			f.observed = f.observed && f.generation == own.fleet.generation
			f.generation, f.resourceVersion = own.fleet.generation, own.fleet.resourceVersion
		default:
			delete(w, f.uid)
		}
	}
	var again time.Duration
	for uid, own := range w {
		left := forgetWrite - now.Sub(own.at)
		switch {
		case own.kind == wroteCreate && !shown[uid] && left > 0:
			f := own.fleet
			f.current = isCurrent(own.template, f.sent)
			fleets = append(fleets, f)
		case !shown[uid]:
			delete(w, uid)
			continue
		}
		if again == 0 || left < again {
			again = left
		}
	}
	return fleets, again
}

// shows says that a Fleet in the cache has what was written, or is later than that.
func (f *fleet) shows(written fleet) bool {
	if f.generation != written.generation {
		return f.generation > written.generation
	}
	return f.number == written.number && f.retiringSince.Equal(written.retiringSince)
}
