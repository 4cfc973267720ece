package fleet

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/text"
)

// actionEvents are the events about what a pass has done: one for each kind of action, however
// many Servers it concerns. Of refusals in a row only the first is reported.
func actionEvents(p plan, o outcome, b backoff) []kit.Notice {
	var list []kit.Notice
	add := func(kind, reason, action, note string) {
		list = append(list, kit.Notice{Type: kind, Reason: reason, Action: action, Note: note})
	}
	if len(o.created) > 0 {
		add(corev1.EventTypeNormal, "Created", "ScaleUp", "Created "+several(o.created)+".")
	}
	if len(o.takenBack) > 0 {
		add(corev1.EventTypeNormal, "TakenBack", "ScaleUp", "Took back "+several(o.takenBack)+" before their players had left.")
	}
	if len(o.drained)+len(o.deleted) > 0 {
		list = append(list, departures(p, o, b)...)
	}
	if o.refused != "" && b.refusals == 1 {
		add(corev1.EventTypeWarning, reasons.ServerRefused, "ScaleUp", "The API server refuses new Servers: "+b.refusal)
	}
	return list
}

// departures are the events about Servers that go.
func departures(p plan, o outcome, b backoff) []kit.Notice {
	var list []kit.Notice
	add := func(kind, reason, action, note string) {
		list = append(list, kit.Notice{Type: kind, Reason: reason, Action: action, Note: note})
	}
	broken := among(p.broken, o.drained, o.deleted)
	if len(broken) > 0 {
		when := ""
		if p.held > 0 {
			when = " at " + clock(b.notBefore)
		}
		add(corev1.EventTypeWarning, "Unhealthy", "Replace", "Replacing what is Unhealthy"+when+": "+several(broken)+".")
	}
	ended := among(p.ended, o.deleted)
	if len(ended) > 0 {
		add(corev1.EventTypeNormal, "Ended", "Replace", "Deleted "+several(ended)+", whose game asked for its end.")
	}
	if names := without(o.drained, broken); len(names) > 0 {
		add(corev1.EventTypeNormal, "Drained", "ScaleDown", "Drained "+several(names)+"; each goes when its players have left.")
	}
	if names := without(without(o.deleted, broken), ended); len(names) > 0 {
		add(corev1.EventTypeNormal, "Deleted", "ScaleDown", "Deleted "+several(names)+".")
	}
	return list
}

// several names some Servers.
func several(names []string) string {
	slices.Sort(names)
	if len(names) == 1 {
		return "Server " + names[0]
	}
	return fmt.Sprintf("%d Servers (%s)", len(names), text.Some(names))
}

// among are the names of the Servers that are in any of the lists.
func among(list []*server, lists ...[]string) []string {
	var names []string
	in := set(slices.Concat(lists...))
	for _, s := range list {
		if in[s.name] {
			names = append(names, s.name)
		}
	}
	return names
}

// without are the names that aren't among others.
func without(names, others []string) []string {
	in := set(others)
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return in[name] })
}

func set(names []string) map[string]bool {
	in := make(map[string]bool, len(names))
	for _, name := range names {
		in[name] = true
	}
	return in
}
