package gametype

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// maxNames bounds how many Servers an event names.
const maxNames = 5

// notice is something that a person would ask about.
type notice struct {
	kind, reason, action, note string
}

func emit(recorder events.EventRecorder, gt *v1alpha1.GameType, list []notice) {
	for _, e := range list {
		recorder.Eventf(gt, nil, e.kind, e.reason, e.action, "%s", e.note)
	}
}

// actionEvents tell what a pass has done.
func actionEvents(p plan, o outcome, s services) []notice {
	var list []notice
	add := func(kind, reason, action, format string, args ...any) {
		list = append(list, notice{kind, reason, action, strings.TrimSpace(fmt.Sprintf(format, args...))})
	}
	for _, name := range s.made {
		add(corev1.EventTypeNormal, "Created", "Publish", "Made the game's %s.", name)
	}
	if o.created != "" {
		add(corev1.EventTypeNormal, "RevisionCreated", "Update", "Made Fleet %s for revision %d, with %s to begin with.", o.created, p.number, several(p.first))
	}
	for _, c := range o.changed {
		age := "the old"
		if c.current {
			age = "the newest revision's"
		}
		reason := "ScaledUp"
		if c.to < c.from {
			reason = "ScaledDown"
		}
		add(corev1.EventTypeNormal, reason, "Update", "Set %s Fleet %s from %d to %s. %s", age, c.name, c.from, several(c.to), p.why)
	}
	if len(o.forced) > 0 {
		named := strings.Join(o.forced[:min(len(o.forced), maxNames)], ", ")
		if more := len(o.forced) - maxNames; more > 0 {
			named += fmt.Sprintf(" and %d more", more)
		}
		add(corev1.EventTypeWarning, "Forced", "Retire", "Ended Servers of earlier revisions whose players had not left within update.retireAfter: %s.", named)
	}
	if len(o.removed) > 0 {
		add(corev1.EventTypeNormal, "RevisionDeleted", "Forget", "Deleted empty Fleets beyond revisionHistoryLimit: %s.", strings.Join(o.removed, ", "))
	}
	return list
}

// transitionEvents tell of what became otherwise in the conditions.
func transitionEvents(before, after *v1alpha1.GameTypeStatus) []notice {
	var list []notice
	for kind, action := range map[string]string{v1alpha1.ConditionProgressing: "Update", v1alpha1.ConditionServiceReady: "Publish"} {
		was, is := meta.FindStatusCondition(before.Conditions, kind), meta.FindStatusCondition(after.Conditions, kind)
		if is == nil || was != nil && was.Reason == is.Reason && was.Status == is.Status {
			continue
		}
		switch {
		case is.Status == metav1.ConditionFalse && is.Reason != v1alpha1.ReasonDraining:
			list = append(list, notice{corev1.EventTypeWarning, is.Reason, action, is.Message})
		case is.Reason == v1alpha1.ReasonUpdated, is.Reason == v1alpha1.ReasonUndone:
			list = append(list, notice{corev1.EventTypeNormal, is.Reason, action, is.Message})
		}
	}
	return list
}

func several(servers int32) string {
	if servers == 1 {
		return "1 Server"
	}
	return fmt.Sprintf("%d Servers", servers)
}
