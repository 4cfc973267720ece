package gametype

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/text"
)

// actionEvents are the events about what a pass has done.
func actionEvents(p plan, o outcome, s services) []kit.Notice {
	var list []kit.Notice
	add := func(kind, reason, action, format string, args ...any) {
		list = append(list, kit.Notice{Type: kind, Reason: reason, Action: action, Note: strings.TrimSpace(fmt.Sprintf(format, args...))})
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
		add(corev1.EventTypeWarning, "Forced", "Retire", "Ended Servers of earlier revisions whose players had not left within update.retireAfter: %s.", text.Some(o.forced))
	}
	if len(o.removed) > 0 {
		add(corev1.EventTypeNormal, "RevisionDeleted", "Forget", "Deleted empty Fleets beyond revisionHistoryLimit: %s.", strings.Join(o.removed, ", "))
	}
	return list
}

// transitionEvents are the events about changes of the conditions.
func transitionEvents(before, after *v1alpha1.GameTypeStatus) []kit.Notice {
	var list []kit.Notice
	for kind, action := range map[string]string{conditions.Progressing: "Update", conditions.ServiceReady: "Publish"} {
		was, is := meta.FindStatusCondition(before.Conditions, kind), meta.FindStatusCondition(after.Conditions, kind)
		if is == nil || was != nil && was.Reason == is.Reason && was.Status == is.Status {
			continue
		}
		switch {
		// A new game's resolver port is listened on a moment later.
		case is.Status == metav1.ConditionFalse && is.Reason != reasons.Draining && is.Reason != reasons.ResolverNotListening:
			list = append(list, kit.Warning(is.Reason, action, "%s", is.Message))
		case is.Reason == reasons.Updated, is.Reason == reasons.Undone:
			list = append(list, kit.Normal(is.Reason, action, "%s", is.Message))
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
