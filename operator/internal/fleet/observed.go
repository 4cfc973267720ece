package fleet

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/fleet/serverbuilder"
	"dormouse.dev/dormouse/operator/internal/places"
)

// server is the part of a Server that a plan depends on. It is comparable: equal ones lead to
// the same plan.
type server struct {
	name            string
	uid             types.UID
	resourceVersion string
	generation      int64
	created         time.Time
	// ownerGeneration is the Fleet's generation for which a wake created it; 0 where none did.
	ownerGeneration int64

	state             v1alpha1.ServerState
	players, capacity int32
	// allowed is set where it may be deleted now.
	allowed bool
	// reported is set once the game has reported anything.
	reported bool
	// allocated means that only the game may end it.
	allocated bool

	// place is its place; places.None where it has none.
	place int32

	// template is a hash of the template that it was made from; empty where none is noted.
	// Outdated is set where that isn't the Fleet's template any more.
	template string
	outdated bool

	// draining is set where it drains, and ours where the Fleet made it drain.
	draining, ours bool
	// deleting is set where it is being deleted.
	deleting bool
	// unhealthy is set where its game counts as broken, shutdown where the game asked for its
	// own end, and lost where its node doesn't answer.
	unhealthy, shutdown, lost bool

	// ready is the condition Ready, changed is its last transition, and message is why it isn't
	// True.
	ready   bool
	changed time.Time
	message string
}

// observe reads a Server's state.
func observe(o *v1alpha1.Server) server {
	s := server{
		name: o.Name, uid: o.UID, resourceVersion: o.ResourceVersion, generation: o.Generation,
		created:  o.CreationTimestamp.Time,
		state:    o.Status.State,
		allowed:  o.Status.DeletionAllowed,
		draining: o.Spec.Drain,
		ours:     o.Annotations[wellknown.DrainedByAnnotation] == wellknown.DrainedByFleet,
		deleting: !o.DeletionTimestamp.IsZero(),
		template: serverbuilder.TemplateHash(o),
		place:    places.Of(o),
	}
	s.ownerGeneration, _ = strconv.ParseInt(o.Annotations[wellknown.OwnerGenerationAnnotation], 10, 64) // 0 where there is none
	if p := o.Status.Players; p != nil {
		s.players, s.capacity = p.Current, p.Capacity
	}
	s.allocated = s.state == v1alpha1.ServerAllocated || s.state == v1alpha1.ServerReserved
	if g := o.Status.Game; g != nil {
		s.reported = g.Reported
		s.shutdown = g.State == v1alpha1.GameShutdown && asked(o, g)
		switch g.State {
		case v1alpha1.GameAllocated, v1alpha1.GameReserved:
			s.allocated = true
		case v1alpha1.GameShutdown:
			s.allocated = false
		default:
		}
	}
	if c := meta.FindStatusCondition(o.Status.Conditions, conditions.Ready); c != nil {
		s.ready, s.changed = c.Status == metav1.ConditionTrue, c.LastTransitionTime.Time
		if !s.ready {
			s.lost, s.message = c.Reason == reasons.NodeLost, c.Message
		}
	}
	// A Server whose node is lost is in state Unhealthy, too, and may come back.
	s.unhealthy = !s.lost && (s.state == v1alpha1.ServerUnhealthy || meta.IsStatusConditionFalse(o.Status.Conditions, conditions.Healthy))
	return s
}

// asked reports whether a game that shuts down asked for that itself, and wasn't told to: by a deletion, or because
// its Server was stopped.
func asked(o *v1alpha1.Server, g *v1alpha1.GameStatus) bool {
	if o.DeletionTimestamp.IsZero() {
		return o.Spec.Runs() && !g.ShutdownSeen
	}
	return g.Since != nil && !o.DeletionTimestamp.Before(g.Since)
}

// hold notes that an Allocation has it. A game that is broken or asks for its end goes all the same.
func (s *server) hold(held bool) {
	s.allocated = s.allocated || held && !s.unhealthy && !s.shutdown
}

// up reports whether it takes players, or is allocated.
func (s *server) up() bool {
	return !s.lost && !s.unhealthy && !s.shutdown && s.state.TakesPlayers()
}

// idle reports whether nobody can have played on it, so that losing it costs nothing.
func (s *server) idle() bool {
	switch s.state {
	case "", v1alpha1.ServerPending, v1alpha1.ServerStarting, v1alpha1.ServerStopped:
		return s.players == 0
	default:
		return false
	}
}

// deletable reports whether it can be deleted without asking its players to leave.
func (s *server) deletable() bool { return s.allowed || s.idle() && !s.reported }

// byAge orders by age, the oldest first. No two are equal.
func byAge(a, b *server) int {
	return cmp.Or(a.created.Compare(b.created), strings.Compare(a.name, b.name))
}
