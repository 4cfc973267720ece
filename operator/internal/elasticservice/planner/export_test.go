package planner

import (
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/spec"
)

// What the tests of plans go by. They are in a package of their own, since they share what
// they observe with those of other packages.
const (
	Settle          = settle
	WakePeriod      = wakePeriod
	MinQueuedPeriod = minQueuedPeriod
	MaxQueuedPeriod = maxQueuedPeriod
)

// PlanRoles decides the resolvers' roles alone.
func (p *Plan) PlanRoles(now time.Time, es *v1alpha1.ElasticService, o Observed) {
	d := decision{Plan: *p, now: now, es: es, is: spec.Of(es), o: &o}
	d.RequeueAfter.AtMost(d.decideRoles())
	*p = d.Plan
}

// AwaitFront decides alone when to look whether a front has a listener.
func (p *Plan) AwaitFront(now time.Time, es *v1alpha1.ElasticService, o Observed) {
	d := decision{Plan: *p, now: now, es: es, o: &o}
	d.awaitFront()
	*p = d.Plan
}
