package gametype

import (
	"fmt"
	"slices"
	"strings"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/text"
)

// undone is a GameType with the template of the revision that UndoToAnnotation names, and
// whether there is such a revision. Everything that depends on the template then uses that one.
// The GameType's spec is its owner's: an owner who applies a manifest again and again would
// undo the undoing.
func undone(gt *v1alpha1.GameType, fleets []v1alpha1.Fleet) (*v1alpha1.GameType, bool) {
	name := gt.Annotations[wellknown.UndoToAnnotation]
	if name == "" {
		return gt, false
	}
	for i := range fleets {
		f := &fleets[i]
		if revisionName(gt, f.Name) != name || !f.DeletionTimestamp.IsZero() {
			continue
		}
		changed := gt.DeepCopy()
		changed.Spec.Template = *f.Spec.Template.DeepCopy()
		keepPortSettings(changed.Spec.Template.Spec.Ports, gt.Spec.Template.Spec.Ports)
		// Its restart is the one that the revision had.
		delete(changed.Annotations, wellknown.RestartedAtAnnotation)
		return changed, true
	}
	return gt, false
}

// keepPortSettings gives a revision's ports what the GameType says of them now and no revision
// depends on.
func keepPortSettings(ports, now []v1alpha1.ServerPort) {
	for i := range ports {
		p := &ports[i]
		at := slices.IndexFunc(now, func(is v1alpha1.ServerPort) bool {
			return is.Name == p.Name && is.Protocol.Transport() == p.Protocol.Transport()
		})
		if at >= 0 {
			is := now[at].DeepCopy()
			p.Protocol, p.Publish, p.Readiness, p.AbortOnClose, p.Asleep = is.Protocol, is.Publish, is.Readiness, is.AbortOnClose, is.Asleep
		}
	}
}

// undoing describes the effect of UndoToAnnotation.
func undoing(gt *v1alpha1.GameType, fleets []fleet, found bool) string {
	name := gt.Annotations[wellknown.UndoToAnnotation]
	if found {
		return fmt.Sprintf(" The annotation %s keeps revision %s; take it off for the template to be used.", wellknown.UndoToAnnotation, text.Bounded(name))
	}
	var names []string
	for i := range fleets {
		names = append(names, revisionName(gt, fleets[i].name))
	}
	slices.Sort(names)
	return fmt.Sprintf(" There is no revision %s, which the annotation %s names: there are %s.",
		text.Bounded(name), wellknown.UndoToAnnotation, strings.Join(names[:min(len(names), maxRevisions)], ", "))
}
