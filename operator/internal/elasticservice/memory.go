package elasticservice

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
)

// memory is what the controller remembers of one object between passes. All of
// it can be lost: a new leader then waits a little longer, and a sleep that had
// begun begins anew.
type memory struct {
	// uid tells the object from a later one of its name.
	uid types.UID
	// noneUpSince is since when no server has been up, upSince since when one has, and
	// noneLastingSince since when none has been for long; zero where that isn't so.
	noneUpSince, upSince, noneLastingSince time.Time
	// steppedDown is since when resolvers' endpoints have been terminating, by the
	// pods' UIDs.
	steppedDown map[string]time.Time
	sleepBegun  *time.Time
	// unblockedAt is when the resolvers began to see all clients, after others had a way
	// past them.
	unblockedAt time.Time
	// target is what the status was last written of.
	target target.Ref
	// triggersSince is when the triggers were to be asked once more before the target is
	// put to sleep; zero where they weren't.
	triggersSince time.Time
	settling      settling
	lastSleep     sleepMemory
	leftovers     leftoverMemory
	scale         scaleMemory
	players       playerMemory
	lastObstacle  string
	diagnosis     diagnosisMemory
	wake          wakeTimes
	// slices are those that were written a moment ago.
	slices sliceWrites
	// strangers are the names, by UIDs, of pods that aren't the target's and that a
	// selector matches.
	strangers map[string]string
	// ports are the resolver ports that it has.
	ports []int32
}

// up takes in whether a server is, and whether one is wanted. One that crashes soon after
// its start, again and again, isn't one that lasts.
func (m *memory) up(now time.Time, is, wanted bool) {
	if !is {
		m.upSince = time.Time{}
		if m.noneUpSince.IsZero() {
			m.noneUpSince = now
		}
		if !wanted {
			m.noneLastingSince = time.Time{}
		} else if m.noneLastingSince.IsZero() {
			m.noneLastingSince = now
		}
		return
	}
	m.noneUpSince = time.Time{}
	if m.upSince.IsZero() {
		m.upSince = now
	}
	if now.Sub(m.upSince) >= recovered {
		m.noneLastingSince = time.Time{}
	}
}

// unblocked is when the resolvers began to see all clients; zero where they always did, as
// far as the status tells.
func (m *memory) unblocked(now time.Time, es *v1alpha1.ElasticService, ob *obstacle) time.Time {
	c := meta.FindStatusCondition(es.Status.Conditions, v1alpha1.ConditionIdleSignal)
	was := c != nil && (c.Reason == v1alpha1.ReasonSelectorBypassesResolver || c.Reason == v1alpha1.ReasonEndpointsBypassResolver)
	if was || ob != nil {
		m.unblockedAt = now
	}
	return m.unblockedAt
}

// stayAwake forgets that a sleep has begun.
func (m *memory) stayAwake() { m.sleepBegun, m.triggersSince = nil, time.Time{} }

// memoryOf is only used by the one worker that has the object.
func (r *Reconciler) memoryOf(es *v1alpha1.ElasticService) *memory {
	key := client.ObjectKeyFromObject(es)
	r.mu.Lock()
	m := r.memories[key]
	r.mu.Unlock()
	if m != nil && m.uid == es.UID {
		return m
	}
	r.forget(key)
	m = &memory{uid: es.UID}
	r.mu.Lock()
	r.memories[key] = m
	r.mu.Unlock()
	return m
}

// forget lets go of all that is known of an object that is gone, also when its
// finalizer was removed by force.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	m := r.memories[key]
	delete(r.memories, key)
	r.mu.Unlock()
	if m == nil {
		return
	}
	r.looks.forget(m.uid)
	for _, port := range m.ports {
		r.ports.free(r.Now(), port, m.uid)
	}
}

// keepPorts remembers which resolver ports the object has.
func (m *memory) keepPorts(ports []v1alpha1.PortStatus) {
	m.ports = m.ports[:0]
	for _, p := range ports {
		m.ports = append(m.ports, p.ResolverPort)
	}
}

// stepDown follows which resolvers' endpoints are terminating, and tells each
// resolver since when.
func (m *memory) stepDown(now time.Time, o *observed) {
	current := currentRoles(o.slices)
	known := m.steppedDown
	m.steppedDown = nil
	for i := range o.resolvers {
		r := &o.resolvers[i]
		if current[r.uid] != roleTerminating {
			continue
		}
		if r.steppedDown = known[r.uid]; r.steppedDown.IsZero() {
			r.steppedDown = now
		}
		if m.steppedDown == nil {
			m.steppedDown = map[string]time.Time{}
		}
		m.steppedDown[r.uid] = r.steppedDown
	}
}
