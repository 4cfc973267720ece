package route

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Target is what an ElasticService scales, where that consists of Servers.
type Target struct{ Namespace, Kind, Name string }

func targetOf(es *v1alpha1.ElasticService) Target {
	ref := es.Spec.ScaleTargetRef
	if schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group != v1alpha1.GroupVersion.Group {
		return Target{}
	}
	return Target{es.Namespace, ref.Kind, ref.Name}
}

// targetsOf are the Fleet and the GameType that a Server belongs to by its labels, and itself.
func targetsOf(s *v1alpha1.Server) []Target {
	return []Target{
		{s.Namespace, "Fleet", s.Labels[wellknown.FleetLabel]},
		{s.Namespace, "GameType", s.Labels[wellknown.GameTypeLabel]},
		{s.Namespace, "Server", s.Name},
	}
}

// SetServer takes a new or changed Server. One that drains, or is told to stop, keeps its players and gets no
// others, seconds before its pod's readiness changes.
func (t *Table) SetServer(s *v1alpha1.Server) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	t.setPlayers(name, s)
	t.setEarly(name, s, podThatTakesPlayers(s))
	t.setSilent(name, s, silentPod(s))
	t.setDraining(name, s, s.Spec.Drain || !s.DeletionTimestamp.IsZero() || !s.Spec.Runs())
}

// DeleteServer forgets a Server.
func (t *Table) DeleteServer(s *v1alpha1.Server) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	t.setPlayers(name, nil)
	t.setEarly(name, s, "")
	t.setSilent(name, s, "")
	t.setDraining(name, s, false)
}

func (t *Table) setDraining(name types.NamespacedName, s *v1alpha1.Server, drains bool) {
	if t.draining[name] == drains {
		return
	}
	if drains {
		t.draining[name] = true
	} else {
		delete(t.draining, name)
	}
	for _, of := range targetsOf(s) {
		t.show(slices.Clone(t.targets[of]))
	}
}

// setTarget adds a route to, or removes it from, the index by target.
func (t *Table) setTarget(r *Route, add bool) {
	if r.Target == (Target{}) {
		return
	}
	rest := slices.DeleteFunc(t.targets[r.Target], func(uid types.UID) bool { return uid == r.UID })
	if add {
		rest = append(rest, r.UID)
	}
	if len(rest) == 0 {
		delete(t.targets, r.Target)
		return
	}
	t.targets[r.Target] = rest
}
