package gametype

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/pending"
)

// written is a Fleet as the API server returned it, with its template.
type written struct {
	fleet    fleet
	template v1alpha1.ServerTemplate
}

// remember remembers a write. A further write to a Fleet that the cache has never shown still
// counts as its creation.
func remember(writes pending.Writes[written], at time.Time, kind pending.Kind, f fleet, template v1alpha1.ServerTemplate) {
	if before, ok := writes[f.uid]; ok && before.Kind == pending.Create && kind == pending.Change {
		kind = pending.Create
	}
	writes[f.uid] = pending.Write[written]{Object: written{fleet: f, template: template}, At: at, Kind: kind}
}

// overlay lays the GameType's pending writes over the Fleets in the cache. Without them a pass
// would plan from an outdated state. isCurrent reports whether a template is the GameType's,
// which may have changed since.
func overlay(isCurrent func(v1alpha1.ServerTemplate, sentTemplate) bool) pending.Overlay[fleet, written] {
	return pending.Overlay[fleet, written]{
		UID: func(f *fleet) types.UID { return f.uid },
		Merge: func(f *fleet, own pending.Write[written]) bool {
			is := own.Object.fleet
			switch {
			case own.Kind == pending.Delete && !f.deleting:
				f.deleting = true
			case own.Kind != pending.Delete && !f.shows(is):
				f.desired, f.number, f.retiringSince, f.unlike = is.desired, is.number, is.retiringSince, is.unlike
				f.places, f.trial = is.places, is.trial
				f.observed = f.observed && f.generation == is.generation
				f.generation, f.resourceVersion = is.generation, is.resourceVersion
			default:
				return false
			}
			return true
		},
		Unseen: func(own written) fleet {
			f := own.fleet
			f.current = isCurrent(own.template, f.sent)
			return f
		},
		Expire: true,
	}
}

// shows reports whether a Fleet in the cache has what was written, or is newer.
func (f *fleet) shows(written fleet) bool {
	if f.generation != written.generation {
		return f.generation > written.generation
	}
	return f.number == written.number && f.retiringSince.Equal(written.retiringSince) && f.trial == written.trial
}
