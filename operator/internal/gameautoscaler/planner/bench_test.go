package planner

import (
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// A plan of all kinds of policies: what 500 autoscalers cost at an interval of ten seconds is
// fifty of these a second.
func BenchmarkPlan(b *testing.B) {
	zoned := waking(evening)
	zoned.Schedule.TimeZone = "Europe/Berlin"
	spec := v1alpha1.GameAutoscalerSpec{MaxReplicas: 10, Policies: []v1alpha1.AutoscalerPolicy{ask, load, spare, zoned, usual}}
	h, o := expecting(), answered(awake(4).plays(20), 4)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h = Make(at(i), &spec, h, o).History
	}
}
