package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// What a sidecar reports for the one after it comes back from any replica.
func TestMemoryIsRestored(t *testing.T) {
	c := cluster(t)
	one, two := start(t, c, "127.0.0.1:0"), start(t, c, "127.0.0.1:0")
	one.memory = `{"phase":"Allocated","later":true}`
	one.say(next(6, func(r *reportapi.Report) {
		r.DeletionAllowed, r.Game.State, r.Game.Reported = false, v1alpha1.GameUnhealthy, true
	}))
	one.eventually("the report is written", func() bool { return one.read().Status.Game.State == v1alpha1.GameUnhealthy })
	want := &reportapi.Memory{Phase: v1alpha1.GameAllocated}
	again := next(0, func(r *reportapi.Report) { r.Instance, r.Restore = "two", true })
	for name, r := range map[string]*replica{"the same": one, "another": two} {
		if diff := cmp.Diff(want, r.say(again).RestoredMemory); diff != "" {
			t.Errorf("%s replica restores (-want +got):\n%s", name, diff)
		}
	}
	one.memory = ""
	one.say(next(7))
	one.eventually("the next one is written", func() bool { return one.read().Status.Game.State == v1alpha1.GameReady })
	if m := two.say(again).RestoredMemory; m != nil {
		t.Errorf("a sidecar that reports none leaves %+v", m)
	}
}

func TestAMemoryThatCantBeIsNone(t *testing.T) {
	for header, want := range map[string]*reportapi.Memory{
		"":                      nil,
		"no JSON":               nil,
		`{"phase":"Somewhere"}`: nil,
		`{"phase":"Unhealthy"}`: nil,
		`{"later":"` + strings.Repeat("x", reportapi.MaxMemoryBytes) + `"}`: nil,
		`{}`:                   {},
		`{"phase":"Starting"}`: {Phase: v1alpha1.GameStarting},
	} {
		if diff := cmp.Diff(want, memoryOf([]byte(header))); diff != "" {
			t.Errorf("%.40q (-want +got):\n%s", header, diff)
		}
	}
}
