package planner

import (
	"fmt"
	"time"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/requeue"
	"dormouse.dev/dormouse/operator/internal/text"
	"dormouse.dev/dormouse/operator/internal/times"
)

// The defaults of the API server, for specs that have not been there.
const (
	defaultInterval     = 30 * time.Second
	defaultDownCooldown = time.Minute
	defaultDownWindow   = 5 * time.Minute
)

// Interval is how often policies that go by the target are evaluated.
func Interval(spec *v1alpha1.GameAutoscalerSpec) time.Duration {
	return durationOr(spec.Sync.Interval, defaultInterval)
}

func upWindow(spec *v1alpha1.GameAutoscalerSpec) time.Duration {
	return durationOr(spec.Behavior.ScaleUp.StabilizationWindow, 0)
}

func downWindow(spec *v1alpha1.GameAutoscalerSpec) time.Duration {
	return durationOr(spec.Behavior.ScaleDown.StabilizationWindow, defaultDownWindow)
}

// upLeft is how long it takes until Servers may be added: the cooldown since some were, and an
// interval at least where only some may come at a time.
func upLeft(now time.Time, spec *v1alpha1.GameAutoscalerSpec, h History) time.Duration {
	up := spec.Behavior.ScaleUp
	return left(now, h.lastUp, cooldown(durationOr(up.Cooldown, 0), up.MaxStep, spec))
}

// downLeft is how long it takes until Servers may be taken away: the same since any change.
func downLeft(now time.Time, spec *v1alpha1.GameAutoscalerSpec, h History) time.Duration {
	down := spec.Behavior.ScaleDown
	last := times.Latest(h.lastUp, h.lastDown)
	return left(now, last, cooldown(durationOr(down.Cooldown, defaultDownCooldown), down.MaxStep, spec))
}

func cooldown(d time.Duration, maxStep *int32, spec *v1alpha1.GameAutoscalerSpec) time.Duration {
	if maxStep != nil {
		return max(d, Interval(spec))
	}
	return d
}

// left is what is left of a cooldown. It is never longer than the cooldown, even where the clock
// went backwards.
func left(now, last time.Time, cooldown time.Duration) time.Duration {
	if last.IsZero() {
		return 0
	}
	return max(0, min(cooldown, last.Add(cooldown).Sub(now)))
}

// change is what becomes of a wish.
type change struct {
	replicas int32
	// able and limited are what the conditions AbleToScale and Limited say.
	able, limited finding
	requeueAfter  requeue.After
}

// finding is a reason, with a sentence about it.
type finding struct{ reason, message string }

// paced is how far replicas change now, of what is wished. held tells why nothing may be taken
// away; it is empty where something may. The windows of h have the wish already.
func paced(now time.Time, spec *v1alpha1.GameAutoscalerSpec, h History, desired, wished int32, held string) change {
	c := change{
		replicas: wished,
		able:     finding{reasons.ReadyToScale, "Nothing makes a change wait."},
	}
	waits := func(reason string, d time.Duration, format string, args ...any) {
		c.able = finding{reason, fmt.Sprintf(format, args...)}
		c.requeueAfter.AtMost(d)
	}

	// Stabilization.
	if least := h.ups[0].wish; c.replicas > desired && least < c.replicas {
		waits(reasons.ScaleUpStabilized, h.ups.left(now, upWindow(spec)), "%s are wished for; the lowest wish of the last %s counts, which was for %d.", text.Servers(wished), upWindow(spec), least)
		c.replicas = max(desired, least)
	}
	if most := h.downs[0].wish; c.replicas < desired && most > c.replicas {
		waits(reasons.ScaleDownStabilized, h.downs.left(now, downWindow(spec)), "%s are wished for; the highest wish of the last %s counts, which was for %d.", text.Servers(wished), downWindow(spec), most)
		c.replicas = min(desired, most)
	}

	// What nothing is taken away for.
	if c.replicas < desired && held != "" {
		waits(reasons.ScaleDownHeld, 0, "No Servers are taken away: %s", held)
		c.replicas = desired
	}

	// Cooldowns.
	if d := upLeft(now, spec, h); c.replicas > desired && d > 0 {
		waits(reasons.CoolingDown, d, "%s are wished for; replicas were changed a short while ago.", text.Servers(wished))
		c.replicas = desired
	}
	if d := downLeft(now, spec, h); c.replicas < desired && d > 0 {
		waits(reasons.CoolingDown, d, "%s are wished for; replicas were changed a short while ago.", text.Servers(wished))
		c.replicas = desired
	}

	// Steps.
	if step := spec.Behavior.ScaleUp.MaxStep; step != nil && int64(c.replicas)-int64(desired) > int64(*step) {
		c.step(desired+*step, cooldown(durationOr(spec.Behavior.ScaleUp.Cooldown, 0), step, spec))
	}
	if step := spec.Behavior.ScaleDown.MaxStep; step != nil && int64(desired)-int64(c.replicas) > int64(*step) {
		c.step(desired-*step, cooldown(durationOr(spec.Behavior.ScaleDown.Cooldown, defaultDownCooldown), step, spec))
	}
	c.bound(spec, wished)
	return c
}

// step goes a step of the way, and asks for the next look.
func (c *change) step(replicas int32, next time.Duration) {
	c.limited = finding{reasons.StepLimited, fmt.Sprintf("There are to be %s; maxStep bounds the change.", text.Servers(c.replicas))}
	c.replicas = replicas
	c.requeueAfter.AtMost(next)
}

// bound keeps replicas within the bounds of the spec. Where the wish is beyond them that tells
// more than a step does.
func (c *change) bound(spec *v1alpha1.GameAutoscalerSpec, wished int32) {
	least, most := bounds(spec)
	switch {
	case wished > most:
		c.limited = finding{reasons.TooManyReplicas, fmt.Sprintf("%s are wished for; maxReplicas is %d.", text.Servers(wished), most)}
	case wished < least:
		c.limited = finding{reasons.TooFewReplicas, fmt.Sprintf("%s are wished for; minReplicas is %d.", text.Servers(wished), least)}
	case c.limited.reason == "":
		c.limited = finding{reasons.WithinBounds, "There are to be as many Servers as the policies wish."}
	}
	c.replicas = clamped(spec, c.replicas)
}

// bounds are the least and the most replicas of a target that is awake.
func bounds(spec *v1alpha1.GameAutoscalerSpec) (least, most int32) {
	least = max(1, or(spec.MinReplicas, 1))
	return least, max(least, min(spec.MaxReplicas, maxReplicas))
}

func clamped(spec *v1alpha1.GameAutoscalerSpec, replicas int32) int32 {
	least, most := bounds(spec)
	return min(max(replicas, least), most)
}
