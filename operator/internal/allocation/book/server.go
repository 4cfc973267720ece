package book

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/slim"
)

// server is a Server, or the place of one that Allocations name and that isn't there.
type server struct {
	name string
	// object is as the cache has it; nil where there is none.
	object *v1alpha1.Server
	// podUID is that of the Pod whose game has reported; empty where none has.
	podUID types.UID
	// owners are what it belongs to, as kind/name, and first itself.
	owners []string
	// holds are the Allocations that have it, or have places on it.
	holds map[*entry]struct{}
	// whole is set where one of them has it for itself alone, and places is how many the others have.
	whole  bool
	places int
	// withdrawn is set while the Fleet is about to drain or delete it, until the cache shows that.
	withdrawn bool
	// due is when that ends; nil: it was never so.
	due *due
	// slots are where the views have it. Mostly there are a few, for which a map takes ten times as much.
	slots []placed
}

// TargetKey is kind/name of what Servers belong to.
func TargetKey(kind, name string) string { return kind + "/" + name }

// see takes in a Server.
func (s *server) see(o *v1alpha1.Server) {
	s.object, s.podUID = o, ""
	if g := o.Status.Game; g != nil {
		s.podUID = types.UID(g.PodUID)
	}
	s.owners = append(make([]string, 0, 3), TargetKey("Server", o.Name))
	if name := o.Labels[wellknown.FleetLabel]; name != "" {
		s.owners = append(s.owners, slim.String(TargetKey("Fleet", name)))
	}
	if name := o.Labels[wellknown.GameTypeLabel]; name != "" {
		s.owners = append(s.owners, slim.String(TargetKey("GameType", name)))
	}
	if o.Spec.Drain || !o.DeletionTimestamp.IsZero() {
		s.withdrawn = false // it has happened
	}
}

// room is what a Server can still give.
type room struct {
	// whole is set where it can be given as a whole, and places is how many it has.
	whole  bool
	places int
}

func (r room) fits(n *need) bool {
	if n.places == 0 {
		return r.whole
	}
	return r.places >= n.places
}

// room is what a Server can still give. The game's own word counts, and not the state, which says
// Allocated for a while after an Allocation has gone.
func (s *server) room() room {
	o := s.object
	if o == nil || s.withdrawn || s.whole || s.podUID == "" || !o.DeletionTimestamp.IsZero() || o.Spec.Drain || !o.Spec.Runs() ||
		!o.Status.State.TakesPlayers() || !meta.IsStatusConditionTrue(o.Status.Conditions, conditions.Ready) || !o.Status.Game.State.TakesPlayers() {
		return room{}
	}
	var current, capacity int
	if p := o.Status.Players; p != nil {
		current, capacity = int(p.Current), int(p.Capacity)
	}
	r := room{whole: o.Status.Game.State == v1alpha1.GameReady && len(s.holds) == 0 && current == 0}
	if capacity > 0 {
		// Who has come by an Allocation is one of both.
		r.places = max(0, capacity-max(current, s.places))
	}
	return r
}

// fills reports whether a Server is one of those that are asked for.
func (s *server) fills(q question) bool {
	if s.object == nil {
		return false
	}
	if q.target != "" {
		found := false
		for _, owner := range s.owners {
			found = found || owner == q.target
		}
		if !found {
			return false
		}
	}
	for key, value := range q.labels {
		if got, ok := s.object.Labels[key]; !ok || got != string(value) {
			return false
		}
	}
	return true
}

// node is the name of its node.
func (s *server) node() string { return s.object.Status.NodeName }

// hold has an Allocation hold it, and let ends that.
func (s *server) hold(e *entry) {
	if s.holds == nil {
		s.holds = map[*entry]struct{}{}
	}
	s.holds[e] = struct{}{}
	s.count()
}

func (s *server) let(e *entry) {
	delete(s.holds, e)
	s.count()
}

func (s *server) count() {
	s.whole, s.places = false, 0
	for e := range s.holds {
		s.whole = s.whole || e.need.places == 0
		s.places += e.need.places
	}
}

// crowds reports whether an Allocation isn't the one that has a Server that another has as a whole:
// that is the first.
func (s *server) crowds(e *entry) bool {
	if len(s.holds) < 2 || !s.whole {
		return false
	}
	for other := range s.holds {
		if other != e && (other.need.places == 0 || e.need.places == 0) && other.before(e) {
			return true
		}
	}
	return false
}

// given fills in what an Allocation is told of its Server.
func (s *server) given(st *v1alpha1.AllocationStatus) {
	o := s.object
	st.ServerName, st.ServerUID, st.PodUID = o.Name, string(o.UID), string(s.podUID)
	st.Address, st.NodeName = o.Status.Address, o.Status.NodeName
	st.Addresses = append([]corev1.NodeAddress(nil), o.Status.Addresses...)
	st.Ports = append([]v1alpha1.ServerPortStatus(nil), o.Status.Ports...)
}

// Has reports whether the Allocation with a status has a Server as it is.
func Has(st *v1alpha1.AllocationStatus, o *v1alpha1.Server) bool {
	var s server
	s.see(o)
	return s.lacks(st) == ""
}

// lacks says in a word why an Allocation has its Server no more; empty: it has it.
func (s *server) lacks(st *v1alpha1.AllocationStatus) string {
	switch {
	case s.object == nil || string(s.object.UID) != st.ServerUID:
		return "it was deleted"
	case st.PodUID != "" && string(s.podUID) != st.PodUID:
		return "its Pod was lost"
	}
	return ""
}

// before reports whether an Allocation came first to a Server.
func (e *entry) before(other *entry) bool {
	at := func(e *entry) int64 {
		if t := e.object.Status.AllocatedAt; e.object.Status.State == v1alpha1.AllocationAllocated && t != nil {
			return t.UnixMicro()
		}
		return 1<<63 - 1 // not yet
	}
	return cmp.Or(cmp.Compare(at(e), at(other)), cmp.Compare(e.object.UID, other.object.UID)) < 0
}
