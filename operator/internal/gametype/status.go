package gametype

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/gametype/publish"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/text"
)

// maxRevisions bounds how many revisions the status lists.
const maxRevisions = 20

// setStatus writes what a pass found and decided into the GameType's status, and sets in the
// plan when to look again because of it.
func setStatus(now time.Time, gt *v1alpha1.GameType, fleets []fleet, p *plan, o outcome, s services) {
	status := &gt.Status
	c := count(fleets, p.current)
	progressed := progress(gt, fleets, p, c)
	if progressed || status.LastProgressTime == nil {
		status.LastProgressTime = &metav1.Time{Time: now}
	}
	status.ObservedGeneration = gt.Generation
	status.Replicas, status.ReadyReplicas, status.UpdatedReplicas = c.active, c.ready, c.updated
	status.AllocatedReplicas, status.DrainingReplicas = c.allocated, c.draining
	status.Players, status.Capacity = c.players, c.capacity
	status.Selector = selector(gt)
	status.Revisions = revisions(gt, fleets)
	if p.current != nil {
		status.UpdateRevision = &v1alpha1.Revision{Name: revisionName(gt, p.current.name), Number: p.number}
		if p.done && Replicas(&gt.Spec) > 0 && p.current.ready >= p.current.desired || settled(gt, p) {
			status.CurrentRevision = status.UpdateRevision.DeepCopy()
		}
	}
	status.Phase = s.phase
	status.Address = s.address
	if s.phase == "" {
		status.Phase = phase(&gt.Spec, c)
	}
	update := progressing(now, gt, p, o, c)
	update.Message += p.undoing
	if p.undone && update.Reason == reasons.Updated {
		update.Reason = reasons.Undone
	}
	condition.SetAll(&status.Conditions, gt.Generation, metav1.Time{Time: now}, update, updated(&update, p), available(gt, p, c), s.ready)
}

// settled reports whether the current revision has taken over before, and there is no other.
func settled(gt *v1alpha1.GameType, p *plan) bool {
	was := gt.Status.CurrentRevision
	return p.done && was != nil && was.Name == revisionName(gt, p.current.name)
}

// counts are the numbers of a GameType's Servers.
type counts struct {
	active, ready, allocated, draining int32
	players, capacity                  int32
	// updated are those of the current revision; old are the others that take
	// players or will, and retiring those that drain.
	updated, old, retiring int32
}

func count(fleets []fleet, current *fleet) counts {
	var c counts
	for i := range fleets {
		f := &fleets[i]
		add := func(to *int32, n int32) { *to = kit.AddCounts(*to, n) }
		add(&c.active, f.active)
		add(&c.ready, f.ready)
		add(&c.allocated, f.allocated)
		add(&c.draining, f.draining)
		add(&c.players, f.players)
		add(&c.capacity, f.capacity)
		if f == current {
			c.updated = f.active
		} else {
			add(&c.old, f.active)
			add(&c.retiring, f.draining)
		}
	}
	return c
}

// progress reports whether an update has advanced since the status was written: more new
// Servers are Ready, fewer old ones are left, it is a different update, or the GameType was asleep. What scales the
// GameType changes its generation, and brings no update further.
func progress(gt *v1alpha1.GameType, fleets []fleet, p *plan, c counts) bool {
	was := &gt.Status
	switch {
	case p.current == nil:
		return false
	case was.UpdateRevision == nil, was.UpdateRevision.Name != revisionName(gt, p.current.name):
		return true
	}
	switch condition.ReasonOf(was.Conditions, conditions.Progressing) {
	case reasons.Asleep:
		return Replicas(&gt.Spec) > 0
	case reasons.Updated, reasons.Undone:
		return !p.done
	}
	old := int32(0)
	ready := int32(0)
	for _, r := range was.Revisions {
		if r.Name == was.UpdateRevision.Name {
			ready = r.Ready
		} else {
			old = kit.AddCounts(old, r.Replicas)
		}
	}
	// Where fewer Servers are asked for, fewer old ones are left by that alone.
	return p.current.ready > ready || c.old < min(old, Replicas(&gt.Spec)) && len(fleets) <= maxRevisions
}

// revisions describes the Fleets, the newest first.
func revisions(gt *v1alpha1.GameType, fleets []fleet) []v1alpha1.RevisionStatus {
	list := make([]*fleet, 0, len(fleets))
	for i := range fleets {
		list = append(list, &fleets[i])
	}
	slices.SortFunc(list, func(a, b *fleet) int { return byNumber(b, a) })
	var all []v1alpha1.RevisionStatus
	for _, f := range list[:min(len(list), maxRevisions)] {
		all = append(all, v1alpha1.RevisionStatus{
			Name: revisionName(gt, f.name), Fleet: f.name, Number: f.number, Replicas: f.active, Ready: f.ready, Draining: f.draining,
		})
	}
	return all
}

// progressing is the condition Progressing.
func progressing(now time.Time, gt *v1alpha1.GameType, p *plan, o outcome, c counts) metav1.Condition {
	const kind = conditions.Progressing
	switch {
	case !gt.DeletionTimestamp.IsZero():
		return condition.False(kind, reasons.Draining, "The GameType is being deleted; %s players to leave.", text.ServersWait(c.active+c.draining))
	case o.refused != "":
		return condition.False(kind, reasons.FleetRefused, "The API server refuses the Fleet of revision %d: %s", p.number, o.refused)
	case p.current == nil:
		return condition.True(kind, reasons.Updating, "Revision %d is about to begin.", p.number)
	case gt.Status.CurrentRevision != nil && *gt.Status.CurrentRevision == *gt.Status.UpdateRevision && p.done:
		return condition.True(kind, reasons.Updated, "All Servers that take players are of revision %d.%s", p.number, retirees(c))
	case Replicas(&gt.Spec) == 0:
		return condition.True(kind, reasons.Asleep, "No Servers are asked for; the next ones are of revision %d.%s", p.number, retirees(c))
	}
	report := fmt.Sprintf("Revision %d has %d of %d Servers ready; %s players.%s",
		p.number, p.current.ready, Replicas(&gt.Spec), takers(c.old), retirees(c))
	if p.why != "" {
		report += " " + p.why
	}
	if p.current.message != "" {
		report += fmt.Sprintf(" Fleet %s: %s", p.current.name, text.Bounded(p.current.message))
	}
	deadline := gt.Spec.Update.ProgressDeadline
	if deadline == nil || deadline.Duration <= 0 {
		return condition.True(kind, reasons.Updating, "%s", report)
	}
	if left := gt.Status.LastProgressTime.Add(deadline.Duration).Sub(now); left > 0 {
		p.requeueAfter.AtMost(left)
		return condition.True(kind, reasons.Updating, "%s", report)
	}
	return condition.False(kind, reasons.DeadlineExceeded,
		"Nothing has come of the update for %s; it goes on trying, and changing the template, or changing it back, begins another one. %s", deadline.Duration, report)
}

// updated is the condition Updated, a short form of Progressing.
func updated(update *metav1.Condition, p *plan) metav1.Condition {
	const kind = conditions.Updated
	if p.undoing != "" && !p.undone {
		return condition.False(kind, reasons.RevisionUnknown, "%s", strings.TrimSpace(p.undoing))
	}
	switch update.Reason {
	case reasons.Updated, reasons.Undone:
		return condition.True(kind, update.Reason, "All Servers that take players are of revision %d.", p.number)
	case reasons.Asleep:
		return condition.True(kind, update.Reason, "No Servers are asked for; the next ones are of revision %d.", p.number)
	default:
		return condition.False(kind, update.Reason, "The condition Progressing says how far it is.")
	}
}

// available is the condition Available.
func available(gt *v1alpha1.GameType, p *plan, c counts) metav1.Condition {
	const kind = conditions.Available
	desired := Replicas(&gt.Spec)
	switch {
	case !gt.DeletionTimestamp.IsZero():
		return condition.False(kind, reasons.Draining, "The GameType is being deleted.")
	case desired == 0:
		return condition.True(kind, reasons.OK, "No Servers are asked for.")
	}
	report := fmt.Sprintf("%d of %d Servers are ready.", c.ready, desired)
	if c.ready >= boundsOf(&gt.Spec).least && len(publish.Ports(gt)) == 0 {
		return condition.False(kind, reasons.NoPorts, "%s But the template has no ports with a containerPort, so players can't reach them: give it one in template.spec.ports.", report)
	}
	if c.ready >= boundsOf(&gt.Spec).least {
		return condition.True(kind, reasons.OK, "%s", report)
	}
	if p.current != nil && p.current.message != "" {
		report += fmt.Sprintf(" Fleet %s: %s", p.current.name, text.Bounded(p.current.message))
	}
	return condition.False(kind, reasons.ServersMissing, "%s", report)
}

// phase is the phase of a GameType whose ElasticService has none.
func phase(spec *v1alpha1.GameTypeSpec, c counts) v1alpha1.Phase {
	switch {
	case Replicas(spec) == 0:
		return v1alpha1.PhaseAsleep
	case c.ready == 0:
		return v1alpha1.PhaseWaking
	default:
		return v1alpha1.PhaseAwake
	}
}

func retirees(c counts) string {
	switch c.retiring {
	case 0:
		return ""
	case 1:
		return " 1 Server of an earlier one waits for its players to leave."
	default:
		return fmt.Sprintf(" %d Servers of earlier ones wait for their players to leave.", c.retiring)
	}
}

func takers(servers int32) string {
	if servers == 1 {
		return "1 of an earlier one takes"
	}
	return fmt.Sprintf("%d of earlier ones take", servers)
}

// onlyStarts reports whether nothing is new in a GameType's status but that the first Servers of a
// wake start.
func onlyStarts(before, after *v1alpha1.GameTypeStatus) bool {
	return before.ObservedGeneration != 0 && before.Replicas == 0 && before.DrainingReplicas == 0 &&
		after.Replicas > 0 && after.ReadyReplicas == 0 && after.DrainingReplicas == 0 &&
		condition.ReasonOf(after.Conditions, conditions.Available) == reasons.ServersMissing &&
		condition.ReasonOf(before.Conditions, conditions.Progressing) == condition.ReasonOf(after.Conditions, conditions.Progressing)
}

// onlyPlayersDiffer reports whether two statuses differ only in how many play.
func onlyPlayersDiffer(a, b *v1alpha1.GameTypeStatus) bool {
	return kit.OnlyPlayersDiffer(a, b, func(s *v1alpha1.GameTypeStatus) (players, capacity *int32) { return &s.Players, &s.Capacity })
}
