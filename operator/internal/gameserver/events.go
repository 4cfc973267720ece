package gameserver

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/gameserver/planner"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/text"
)

// notices are the events of a pass that has changed before to after.
func notices(before, after *v1alpha1.Server, p planner.Plan) []kit.Notice {
	var list []kit.Notice
	add := func(kind, reason, action, note string) {
		list = append(list, kit.Notice{Type: kind, Reason: reason, Action: action, Note: text.Excerpt(note)})
	}
	was, is := readyOf(before), readyOf(after)
	if p.Failed {
		add(corev1.EventTypeWarning, "Failed", "Replace", fmt.Sprintf("The Pod ended or broke, for the %d. time: another one follows.", after.Status.Failures))
	}
	if p.Forced {
		add(corev1.EventTypeWarning, "Forced", "Delete", "The Pod goes though its players are there: "+text.LowerFirst(p.DeletionMessage()))
	}
	if p.Retire != "" {
		add(corev1.EventTypeNormal, "Retired", "Delete", p.Retire)
	}
	if was.reason == is.reason {
		return list
	}
	switch is.reason {
	case reasons.OK:
		if planner.InFleet(after) && (was.reason == "" || was.reason == reasons.Pending || was.reason == reasons.Starting) {
			break // as planned: ten thousand such events would hide those that matter
		}
		add(corev1.EventTypeNormal, "Ready", "Serve", is.message)
	case reasons.Unhealthy, reasons.NodeLost, reasons.HostPortTaken, reasons.PodExists, reasons.SlowStart, reasons.PodDeleted,
		reasons.ServerCrashing, reasons.ImageUnavailable, reasons.ContainerNotCreated, reasons.VolumeNotMounted, reasons.SandboxNotCreated:
		add(corev1.EventTypeWarning, is.reason, "Observe", is.message)
	case reasons.DisksBusy:
		add(corev1.EventTypeNormal, "DisksBusy", "Wait", is.message)
	case reasons.Draining:
		add(corev1.EventTypeNormal, "Draining", "Drain", is.message)
	case reasons.Stopped:
		add(corev1.EventTypeNormal, "Stopped", "Stop", is.message)
	}
	return list
}

type readyCondition struct{ reason, message string }

func readyOf(s *v1alpha1.Server) readyCondition {
	for _, c := range s.Status.Conditions {
		if c.Type == conditions.Ready {
			return readyCondition{c.Reason, c.Message}
		}
	}
	return readyCondition{}
}
