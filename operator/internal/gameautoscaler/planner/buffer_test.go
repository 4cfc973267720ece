package planner

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestABufferKeepsRoom(t *testing.T) {
	of := func(text string) *intstr.IntOrString { return new(intstr.Parse(text)) }
	spare := func(text string) v1alpha1.BufferPolicy { return v1alpha1.BufferPolicy{Servers: of(text)} }
	slots := func(text string) v1alpha1.BufferPolicy { return v1alpha1.BufferPolicy{PlayerSlots: of(text)} }
	// used is a target with so many Servers, of which some are empty.
	used := func(replicas, empty int32) Observed {
		return awake(replicas).with(func(o *Observed) { o.Empty = empty })
	}
	within := func(p v1alpha1.BufferPolicy, least, most int32) v1alpha1.BufferPolicy {
		if least > 0 {
			p.MinReplicas = &least
		}
		if most > 0 {
			p.MaxReplicas = &most
		}
		return p
	}
	for name, test := range map[string]struct {
		policy   v1alpha1.BufferPolicy
		observed Observed
		want     outcome
	}{
		"as many are spare":           {spare("2"), used(5, 2), outcome{5, reasons.BufferKept, false, 0}},
		"too few are spare":           {spare("2"), used(5, 0), outcome{7, reasons.BufferKept, false, 0}},
		"too many are spare":          {spare("2"), used(5, 5), outcome{2, reasons.BufferKept, false, 0}},
		"some start":                  {spare("2"), used(5, 1).with(func(o *Observed) { o.Ready = 4 }), outcome{5, reasons.BufferKept, false, 0}},
		"none is there":               {spare("2"), Observed{Desired: 1, Fresh: true}, outcome{2, reasons.BufferKept, false, 0}},
		"more are empty than Ready":   {spare("2"), used(5, 7), outcome{2, reasons.BufferKept, false, 0}},
		"a fifth is spare":            {spare("20%"), used(5, 1), outcome{5, reasons.BufferKept, false, 0}},
		"a fifth, rounded up":         {spare("20%"), used(5, 0), outcome{7, reasons.BufferKept, false, 0}},
		"a percentage of nothing":     {spare("20%"), used(5, 5), outcome{1, reasons.BufferKept, false, 0}},
		"nearly all":                  {spare("99%"), used(3, 0), outcome{300, reasons.BufferKept, false, 0}},
		"more than can be":            {spare("99%"), used(500, 0), outcome{10000, reasons.BufferKept, false, 0}},
		"a number that is none":       {spare("few"), used(5, 0), outcome{-1, reasons.NotObserved, true, 0}},
		"a percentage of all":         {spare("100%"), used(5, 0), outcome{-1, reasons.NotObserved, true, 0}},
		"its floor":                   {within(spare("2"), 4, 0), used(5, 5), outcome{4, reasons.BufferFloor, false, 0}},
		"its ceiling":                 {within(spare("2"), 0, 6), used(5, 0), outcome{6, reasons.BufferCeiling, false, 0}},
		"between both":                {within(spare("2"), 2, 9), used(5, 0), outcome{7, reasons.BufferKept, false, 0}},
		"room for as many":            {slots("20"), awake(5).plays(30), outcome{5, reasons.BufferKept, false, 0}},
		"one player more":             {slots("20"), awake(5).plays(31), outcome{6, reasons.BufferKept, false, 0}},
		"room for one":                {slots("1"), awake(5).plays(0), outcome{1, reasons.BufferKept, false, 0}},
		"room for a fifth":            {slots("20%"), awake(5).plays(40), outcome{5, reasons.BufferKept, false, 0}},
		"room for a fifth, one more":  {slots("20%"), awake(5).plays(41), outcome{6, reasons.BufferKept, false, 0}},
		"room, and nobody plays":      {slots("20%"), awake(5).plays(0), outcome{1, reasons.BufferKept, false, 0}},
		"room, less than nobody":      {slots("20"), awake(5).plays(-7), outcome{2, reasons.BufferKept, false, 0}},
		"room on Servers that differ": {slots("10"), awake(3).with(func(o *Observed) { o.Players, o.Capacity = 20, 35 }), outcome{3, reasons.BufferKept, false, 0}},
		"room while some start":       {slots("10"), awake(5).with(func(o *Observed) { o.Ready = 2 }).plays(15), outcome{3, reasons.BufferKept, false, 0}},
		"room on none that is Ready":  {slots("10"), awake(5).with(func(o *Observed) { o.Ready = 0 }), outcome{5, reasons.ServersNotReady, false, 0}},
		"room without a capacity":     {slots("10"), awake(5), outcome{-1, reasons.CapacityUnknown, true, 0}},
		"room for huge numbers":       {slots("99%"), awake(5).with(func(o *Observed) { o.Players, o.Capacity = math.MaxInt64, math.MaxInt64 }), outcome{5, reasons.BufferKept, false, 0}},
		"room for too many":           {slots("10000000"), awake(5).with(func(o *Observed) { o.Players, o.Capacity = 5, 5 }), outcome{10000, reasons.BufferKept, false, 0}},
		"nothing that is known":       {v1alpha1.BufferPolicy{}, awake(5), outcome{-1, reasons.NotObserved, true, 0}},
	} {
		got, delay := buffer(t0, &test.policy, nil, test.observed)
		if diff := cmp.Diff(test.want, outcomeOf(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s%s", name, diff, got.message)
		}
		if got.message == "" || len(delay) > 0 {
			t.Errorf("%s: the sentence is %q, and the delay %v", name, got.message, delay)
		}
	}
}

func TestABufferShrinksAfterItsDelay(t *testing.T) {
	policy := v1alpha1.BufferPolicy{Servers: new(intstr.FromInt32(1)), ScaleDownDelay: seconds(600)}
	var delay window
	for _, step := range []struct {
		at    int
		empty int32
		want  outcome
	}{
		{0, 0, outcome{6, reasons.BufferKept, false, 0}},
		{60, 3, outcome{6, reasons.BufferDelayed, false, 660 * time.Second}},
		{120, 2, outcome{6, reasons.BufferDelayed, false, 660 * time.Second}},
		{659, 4, outcome{6, reasons.BufferDelayed, false, 660 * time.Second}},
		{660, 4, outcome{4, reasons.BufferDelayed, false, 1259 * time.Second}},
		{700, 0, outcome{6, reasons.BufferKept, false, 0}},
	} {
		var got wish
		got, delay = buffer(at(step.at), &policy, delay, awake(5).with(func(o *Observed) { o.Empty = step.empty }))
		if diff := cmp.Diff(step.want, outcomeOf(got)); diff != "" {
			t.Errorf("after %d s (-want +got):\n%s%s", step.at, diff, got.message)
		}
	}
}

// While nothing is Ready what was wished before goes on to count.
func TestABufferKeepsItsDelayWhileItWaits(t *testing.T) {
	policy := v1alpha1.BufferPolicy{PlayerSlots: new(intstr.FromInt32(20)), ScaleDownDelay: seconds(600)}
	_, delay := buffer(at(0), &policy, nil, awake(5).plays(50))
	_, delay = buffer(at(60), &policy, delay, awake(5).with(func(o *Observed) { o.Ready = 0 }))
	got, _ := buffer(at(120), &policy, delay, awake(5).plays(0))
	if diff := cmp.Diff(outcome{7, reasons.BufferDelayed, false, 720 * time.Second}, outcomeOf(got)); diff != "" {
		t.Errorf("(-want +got):\n%s%s", diff, got.message)
	}
}

// A new leader knows nothing of what was wished, and takes nothing away before the delay is over.
func TestABufferBeginsItsDelayWithWhatThereIs(t *testing.T) {
	policy := v1alpha1.BufferPolicy{Servers: new(intstr.FromInt32(1)), ScaleDownDelay: seconds(600)}
	spec := fast(v1alpha1.AutoscalerPolicy{Name: "room", Buffer: &policy})
	eight := awake(8).with(func(o *Observed) { o.Empty = 7 })
	for name, h := range map[string]History{
		"a new leader":                           HistoryOf(&v1alpha1.GameAutoscaler{}),
		"a target that could not be scaled long": Make(at(-60), &spec, History{}, eight).History.Untargeted(),
	} {
		p := Make(at(0), &spec, h, eight)
		if p.Desired != 8 {
			t.Errorf("%s: it comes to %d Servers at once", name, p.Desired)
		}
		if p = Make(at(599), &spec, p.History, eight); p.Desired != 8 {
			t.Errorf("%s: it comes to %d Servers before the delay is over", name, p.Desired)
		}
		if p = Make(at(600), &spec, p.History, eight); p.Desired != 2 {
			t.Errorf("%s: it comes to %d Servers after the delay", name, p.Desired)
		}
	}
	// There are more than the policy may ever wish.
	policy.MaxReplicas = new(int32(5))
	if p := Make(at(0), &spec, History{}, eight); p.Desired != 5 {
		t.Errorf("with a ceiling it comes to %d Servers", p.Desired)
	}
}
