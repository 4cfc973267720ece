package fleet

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/text"
)

// setStatus writes what a pass found and decided into the Fleet's status.
func setStatus(now time.Time, f *v1alpha1.Fleet, servers []server, p plan, b backoff) {
	c := count(servers)
	s := &f.Status
	s.ObservedGeneration = f.Generation
	s.Replicas, s.ReadyReplicas, s.UpdatedReplicas = c.active, c.ready, c.updated
	s.AllocatedReplicas, s.DrainingReplicas = c.allocated, c.draining
	s.Players, s.Capacity = c.players, c.capacity
	s.Selector = selector(f)
	if s.FirstReadyTime == nil && c.ready > 0 {
		s.FirstReadyTime = &metav1.Time{Time: now}
	}
	condition.SetAll(&s.Conditions, f.Generation, metav1.Time{Time: now}, ready(f, c, p, b), updated(f, c))
}

// counts are the numbers of a Fleet's Servers.
type counts struct {
	active, ready, updated, allocated, draining int32
	players, capacity                           int32
	// remain are those of an earlier template that only their games end.
	remain int32
	// waiting is the oldest one that should be ready and isn't.
	waiting *server
}

func count(servers []server) counts {
	var c counts
	for i := range servers {
		s := &servers[i]
		c.players = kit.AddCounts(c.players, s.players)
		if s.deleting || s.draining {
			c.draining++
			continue
		}
		c.active++
		switch {
		case !s.outdated, s.lost: // one that is lost has a successor, or can have none
			c.updated++
		case s.allocated:
			c.remain++
		}
		if !s.up() {
			if c.waiting == nil || byAge(s, c.waiting) < 0 {
				c.waiting = s
			}
			continue
		}
		c.ready++
		c.capacity = kit.AddCounts(c.capacity, s.capacity)
		if s.state == v1alpha1.ServerAllocated || s.state == v1alpha1.ServerReserved {
			c.allocated++
		}
	}
	return c
}

// ready is the condition Ready: whether as many Servers are ready as desired, and if not, why.
func ready(f *v1alpha1.Fleet, c counts, p plan, b backoff) metav1.Condition {
	const kind = conditions.Ready
	desired := ptr.Deref(f.Spec.Replicas, 1)
	if !f.DeletionTimestamp.IsZero() {
		return condition.False(kind, reasons.Draining, "The Fleet is being deleted; %s players to leave.", text.ServersWait(c.active+c.draining))
	}
	refused := b.refusal != "" && (p.create > 0 || p.refused)
	if c.ready >= desired && !refused && p.problem == "" {
		return condition.True(kind, reasons.OK, "%s", allReady(desired, c, p))
	}
	progress := fmt.Sprintf("%d of %d Servers are ready.", c.ready, desired)
	switch {
	case refused:
		return condition.False(kind, reasons.ServerRefused, "%s The API server refuses new ones, and is asked again at %s: %s",
			progress, clock(b.refusedUntil), b.refusal)
	case p.problem != "":
		return condition.False(kind, reasons.PlacesInvalid, "%s %s", progress, p.problem)
	case p.taken != "":
		return condition.False(kind, reasons.NameTaken,
			"%s Server %s has the name of one of its places and isn't this Fleet's: delete it, or give the Fleet another name.", progress, p.taken)
	case p.held > 0:
		return condition.False(kind, reasons.Backoff, "%s Replacements wait until %s, because Servers broke or ended early %d times in a row.",
			progress, clock(b.notBefore), b.streak)
	case c.waiting != nil && c.waiting.message != "":
		return condition.False(kind, reasons.ServersMissing, "%s Server %s: %s", progress, c.waiting.name, text.Bounded(c.waiting.message))
	default:
		return condition.False(kind, reasons.ServersMissing, "%s", progress)
	}
}

// updated is the condition Updated: whether the Servers are of the Fleet's template.
func updated(f *v1alpha1.Fleet, c counts) metav1.Condition {
	const kind = conditions.Updated
	outdated := c.active - c.updated
	switch {
	case outdated == 0:
		return condition.True(kind, reasons.Updated, "All Servers that take players are of the template.")
	case f.Spec.UpdateStrategy == v1alpha1.FleetUpdateRolling && c.remain == outdated:
		return condition.False(kind, reasons.AllocatedRemain, "%s of an earlier template and Allocated, until the games there end.", are(outdated, c.active))
	case f.Spec.UpdateStrategy == v1alpha1.FleetUpdateRolling:
		return condition.False(kind, reasons.Updating, "%s of an earlier template and replaced as new ones get ready; Allocated ones stay until their games end.", are(outdated, c.active))
	default:
		return condition.False(kind, reasons.OnDelete, "%s of an earlier template. With updateStrategy OnDelete they stay until something else ends them; Rolling replaces them.", are(outdated, c.active))
	}
}

func are(some, all int32) string {
	if some == 1 {
		return fmt.Sprintf("1 of %d Servers is", all)
	}
	return fmt.Sprintf("%d of %d Servers are", some, all)
}

func allReady(desired int32, c counts, p plan) string {
	var b strings.Builder
	if desired == 0 {
		b.WriteString("No Servers are asked for.")
	} else {
		fmt.Fprintf(&b, "%d of %d Servers are ready.", c.ready, desired)
	}
	if p.spared > 0 {
		fmt.Fprintf(&b, " There are %d more than asked for, because Allocated Servers stay until their games end.", p.spared)
	}
	return b.String()
}

// onlyStarts reports whether nothing is new in a Fleet's status but that the first Servers of a
// wake start.
func onlyStarts(before, after *v1alpha1.FleetStatus) bool {
	return before.ObservedGeneration != 0 && before.Replicas == 0 && before.DrainingReplicas == 0 &&
		after.Replicas > 0 && after.ReadyReplicas == 0 && after.DrainingReplicas == 0 &&
		condition.ReasonOf(after.Conditions, conditions.Ready) == reasons.ServersMissing &&
		condition.ReasonOf(before.Conditions, conditions.Updated) == condition.ReasonOf(after.Conditions, conditions.Updated)
}

// onlyPlayersDiffer reports whether two statuses differ only in how many play.
func onlyPlayersDiffer(a, b *v1alpha1.FleetStatus) bool {
	return kit.OnlyPlayersDiffer(a, b, func(s *v1alpha1.FleetStatus) (players, capacity *int32) { return &s.Players, &s.Capacity })
}

// clock formats a time to the second.
func clock(t time.Time) string { return t.UTC().Format(time.TimeOnly) + " UTC" }
