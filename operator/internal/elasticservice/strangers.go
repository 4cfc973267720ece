package elasticservice

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// A Service's selector may match pods that aren't the target's. Nobody needs to ask for
// pods to find out: those that go on serving while the target is at zero are not its own.

// strangerAfter is how long after the target went to zero its own pods may look as if they
// stayed.
const strangerAfter = 30 * time.Second

// observeStrangers finds pods that the Service's selector, or the target's, matches and that
// aren't the target's. They are remembered while the target has pods of its own. Before any
// are found left tells, by the API server, how many the target still has: some end their pods
// one after the other.
func (m *memory) observeStrangers(now time.Time, es *v1alpha1.ElasticService, o *observed, left func() (int32, error)) {
	if m.target.Name != "" && m.target != refOf(es) {
		m.strangers = nil
	}
	if refOf(es).HasServers() {
		return // Its draining Servers outlast its sleep.
	}
	serving := map[string]string{}
	for i := range o.sources {
		for _, e := range o.sources[i].Endpoints {
			if e.TargetRef != nil && ptr.Deref(e.Conditions.Serving, true) && !ptr.Deref(e.Conditions.Terminating, false) {
				serving[uidOf(&e)] = e.TargetRef.Name
			}
		}
	}
	asleep := o.scale.err == nil && o.scale.replicas == 0 && es.Status.Phase == v1alpha1.PhaseAsleep
	maps.DeleteFunc(m.strangers, func(uid, _ string) bool { return serving[uid] == "" })
	if asleep && len(serving) > len(m.strangers) {
		if wait := phaseSince(es).Add(strangerAfter).Sub(now); wait > 0 {
			o.strangersNext = wait
		} else if n, err := left(); n > 0 || err != nil {
			o.strangersNext = strangerAfter
		} else {
			m.strangers = serving
		}
	}
	o.strangers = slices.Sorted(maps.Values(m.strangers))
}

// strangersFlaw says what to do about them; nil where there are none.
func strangersFlaw(es *v1alpha1.ElasticService, o observed) *obstacle {
	if len(o.strangers) == 0 {
		return nil
	}
	target := fmt.Sprintf("%s %s", es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name)
	if o.service != nil && len(o.service.Spec.Selector) == 0 {
		return &obstacle{v1alpha1.ReasonSelectorMatchesOthers, fmt.Sprintf(
			"The selector of %s matches pods that aren't its own (%s), so that clients are sent to them: give those other labels, or the target a narrower selector.", target, some(o.strangers))}
	}
	return &obstacle{v1alpha1.ReasonSelectorMatchesOthers, fmt.Sprintf(
		"The selector of Service %s matches pods that aren't those of %s (%s), so that clients reach them while it sleeps: make the selector narrower, or give those pods other labels.",
		es.Spec.Service, target, some(o.strangers))}
}
