package elasticservice

import (
	"hash/maphash"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/autoscaler"
	"dormouse.dev/dormouse/operator/internal/elasticservice/lookout"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/elasticservice/wakestages"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/pending"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/times"
)

// state is the controller's memory of one object between passes. All of it can be lost: a new
// leader then waits a little longer, and a sleep that had begun begins again.
type state struct {
	// noneUpSince is since when no server has been up, upSince since when one has, and
	// noneLastingSince since when none has been up for long; zero where that isn't so.
	noneUpSince, upSince, noneLastingSince time.Time
	// steppedDown is since when resolvers' endpoints have been terminating.
	steppedDown endpoints.SteppedDown
	// sleepBegun is as in planner.Observed.
	sleepBegun *time.Time
	// unblockedAt and lastActive are as in planner.Observed.
	unblockedAt, lastActive time.Time
	// target is the target when the status was last written.
	target target.Ref
	// untriggered is set once the poller knows that there are no triggers to ask.
	untriggered bool
	// triggersSince is when the triggers were to be asked once more before the target is put to
	// sleep; zero where they weren't.
	triggersSince time.Time
	lastSleep     sleepState
	scale         scaleState
	lastObstacle  string
	diagnosis     lookout.History
	wake          wakestages.Wake
	// lastWake is where the time of the last wake went, once one was measured.
	lastWake *v1alpha1.LastWake
	// written is the controller's last write of the object; nil once the cache shows it.
	written *written
	// pendingSlices are slices that were written and that the cache doesn't show yet.
	pendingSlices endpoints.PendingSlices
	// strangers are the names, by UID, of pods that a selector matches and that aren't the
	// target's.
	strangers map[string]string
	// ports are the object's resolver ports.
	ports []v1alpha1.PortStatus
	// prepared is the hash of that for which the ports and the private Service were last found as they are
	// wanted, so that not each pass compares them; 0 where they weren't.
	prepared uint64
	// What few of thousands of objects have; nil: they have it not.
	settling   *settling
	leftovers  *leftoverState
	players    *playerState
	autoscaler *autoscaler.Attempts
}

// preparedOf is what an object's ports and its private Service depend on beside its status: the spec, by its
// generation, both Services, by their resourceVersions, and the selector of the target's scale.
type preparedOf struct {
	generation                 int64
	service, private, selector string
}

var seed = maphash.MakeSeed()

// made is what few objects have, made where it wasn't there.
func made[T any](part **T) *T {
	if *part == nil {
		*part = new(T)
	}
	return *part
}

// recovered is how long a server must have been up to count as lasting.
const recovered = time.Minute

// follow takes in whether a server is up, and which clients are seen, and tells o since when. A server
// that crashes soon after each start doesn't count as lasting.
func (m *state) follow(now time.Time, es *v1alpha1.ElasticService, o *planner.Observed) {
	m.followClients(now, es, o)
	if o.Up > 0 {
		m.noneUpSince = time.Time{}
		if m.upSince.IsZero() {
			m.upSince = now
		}
		if now.Sub(m.upSince) >= recovered {
			m.noneLastingSince = time.Time{}
		}
	} else {
		m.upSince = time.Time{}
		if m.noneUpSince.IsZero() {
			m.noneUpSince = now
		}
		if wanted := o.Scale.Err != nil || o.Scale.Replicas > 0; !wanted {
			m.noneLastingSince = time.Time{}
		} else if m.noneLastingSince.IsZero() {
			m.noneLastingSince = now
		}
	}
	o.UpSince, o.NoneUpSince, o.NoneLastingSince = m.upSince, m.noneUpSince, m.noneLastingSince
	o.SleepBegun = m.sleepBegun
}

// followClients takes in when the last client was seen, and since when none goes unseen. What another process
// learnt of that is in the status.
func (m *state) followClients(now time.Time, es *v1alpha1.ElasticService, o *planner.Observed) {
	signal := meta.FindStatusCondition(es.Status.Conditions, conditions.IdleSignal)
	switch {
	case o.Blocked != nil, signal != nil && signal.Status == metav1.ConditionFalse,
		es.Spec.Handoff == v1alpha1.HandoffNever && es.Status.Mode == v1alpha1.ModeServe: // it was Direct until now
		m.unblockedAt = now
	case signal != nil:
		m.unblockedAt = times.Latest(m.unblockedAt, signal.LastTransitionTime.Time)
	}
	first := m.upSince.IsZero() && m.noneUpSince.IsZero()
	if first && (es.Status.Sessions > 0 || es.Status.Queued > 0) {
		m.lastActive = now // the resolver that had them may be gone
	}
	m.lastActive = times.Latest(m.lastActive, planner.LastActive(now, o.Resolvers))
	o.UnblockedAt, o.LastActive = m.unblockedAt, m.lastActive
}

// written is an object as the API server returned it after a write, and how long the cache has lagged
// behind that.
type written struct {
	es  *v1alpha1.ElasticService
	lag pending.Lag
}

// wrote remembers an object as the API server returned it. It must not be changed any more.
func (m *state) wrote(es *v1alpha1.ElasticService) {
	es.ManagedFields = nil
	m.written = &written{es: es}
}

// newest is the object as the cache has it, or as the controller's last write left it if the cache doesn't
// have that yet: a pass by an older one would write by it, and be refused. It must not be changed.
func (m *state) newest(now time.Time, cached *v1alpha1.ElasticService) *v1alpha1.ElasticService {
	if w := m.written; w != nil && w.lag.Lasts(now, kit.Later(w.es, cached)) {
		return w.es
	}
	m.written = nil
	return cached
}

// stayAwake forgets that a sleep has begun.
func (m *state) stayAwake() { m.sleepBegun, m.triggersSince = nil, time.Time{} }

// stateOf is the object's state. Only the one worker that has the object may use it.
func (r *Reconciler) stateOf(es *v1alpha1.ElasticService) *state {
	return r.states.Of(client.ObjectKeyFromObject(es), es.UID)
}

// dropped forgets everything about an object that is gone, including one whose finalizer was
// removed by force.
func (r *Reconciler) dropped(uid types.UID, m *state) {
	r.lookouts.Forget(uid)
	for _, port := range m.ports {
		r.Ports.Free(r.Now(), port.ResolverPort, uid)
	}
}
