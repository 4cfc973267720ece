package route

import (
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// A game's sidecar reports at once that the game takes players. kubelet finds that out by its next
// probe, up to a second later, and held clients needn't wait for it. Once kubelet has, its word
// counts alone: it also tells of a node that is lost.

// earlyFor is for how long a game's word counts. After that kubelet must have found it out, or the
// word is left of a node that doesn't answer any more.
const earlyFor = 30 * time.Second

// early is a Server whose game takes players.
type early struct {
	pod types.UID
	// until is when the game's word ends; zero once kubelet has found it out, too.
	until time.Time
}

// podThatTakesPlayers is the UID of the pod whose game takes players by its own word, or by what it
// answers to a probe; empty: there is none. Of a game that says nothing the sidecar doesn't know
// whether it listens.
func podThatTakesPlayers(s *v1alpha1.Server) types.UID {
	if game := s.Status.Game; game != nil && game.Reported && game.State.TakesPlayers() {
		return types.UID(game.PodUID)
	}
	return ""
}

// setEarly takes in which of a Server's pods takes players. It is called with the table's lock.
func (t *Table) setEarly(name types.NamespacedName, s *v1alpha1.Server, pod types.UID) {
	was := t.early[name]
	if was.pod == pod {
		return
	}
	is := early{pod: pod}
	if pod == "" {
		delete(t.early, name)
	} else {
		if since := s.Status.Game.Since; since != nil && !t.serves(s, pod) {
			is.until = since.Add(earlyFor)
		}
		t.early[name] = is
	}
	if now := t.now(); now.Before(was.until) || now.Before(is.until) {
		for _, of := range targetsOf(s) {
			t.show(slices.Clone(t.targets[of]))
		}
	}
}

// serves reports whether kubelet has found out that a Server's pod takes players.
func (t *Table) serves(s *v1alpha1.Server, pod types.UID) bool {
	for _, of := range targetsOf(s) {
		for _, uid := range t.targets[of] {
			r := t.routes[uid]
			for _, slice := range t.slices[types.NamespacedName{Namespace: r.Namespace, Name: r.PrivateService}] {
				for i := range slice.Endpoints {
					e := &slice.Endpoints[i]
					if serving, _ := conditionsOf(e); serving && e.TargetRef != nil && e.TargetRef.UID == pod {
						return true
					}
				}
			}
		}
	}
	return false
}

// findServing takes in what kubelet has found out of a slice's pods.
func (t *Table) findServing(slice *discoveryv1.EndpointSlice) {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if serving, _ := conditionsOf(e); !serving || e.TargetRef == nil {
			continue
		}
		name := types.NamespacedName{Namespace: slice.Namespace, Name: e.TargetRef.Name}
		if is, ok := t.early[name]; ok && is.pod == e.TargetRef.UID {
			t.early[name] = early{pod: is.pod}
		}
	}
}
