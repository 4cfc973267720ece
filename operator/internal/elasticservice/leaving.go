package elasticservice

import (
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// leaveTime is how long who runs the pods of a target at zero is given to end them,
// on a busy control plane.
const leaveTime = 5 * time.Second

// leaving are the servers that a target had when it went to zero. A client who comes
// in that moment has it scaled up again, and then a pod may look for a while as if it
// stayed that is about to be ended: new clients must not be sent to it. One that is
// still there after leaveTime stays.
type leaving struct {
	// uids are those of the pods.
	uids  map[string]bool
	until time.Time
}

// begin notes who was there at zero. Who is not ready was not there before.
func (l *leaving) begin(now time.Time, servers []server) {
	*l = leaving{uids: map[string]bool{}, until: now.Add(leaveTime)}
	for _, s := range servers {
		if s.serving {
			l.uids[s.uid] = true
		}
	}
}

// at is who may be ended at any moment.
func (l *leaving) at(now time.Time) leaving {
	if !now.Before(l.until) {
		*l = leaving{}
	}
	return *l
}

// takesNobody says that an endpoint is not to get new clients, whatever its pod's
// readiness says.
func (o *observed) takesNobody(e *discoveryv1.Endpoint) bool {
	return e.TargetRef != nil && o.draining[e.TargetRef.Name] || o.leaving.uids[uidOf(e)]
}
