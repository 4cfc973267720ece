package report

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// What a sidecar reports for the one after it comes back from any replica.
func TestMemoryIsRestored(t *testing.T) {
	c := cluster(t)
	one, two := start(t, c, "127.0.0.1:0"), start(t, c, "127.0.0.1:0")
	one.memory = `{"phase":"Allocated","started":"2026-01-02T12:00:00Z","countsPlayers":true,"later":true}`
	one.say(next(6, func(r *reportapi.Report) {
		r.DeletionAllowed, r.Game.State, r.Game.Reported = false, v1alpha1.GameUnhealthy, true
	}))
	one.eventually("the report is written", func() bool { return one.read().Status.Game.State == v1alpha1.GameUnhealthy })
	want := &reportapi.Memory{Phase: v1alpha1.GameAllocated, Started: new(noon), CountsPlayers: true}
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
		`{"started":"soon"}`:    nil,
		`{"later":"` + strings.Repeat("x", reportapi.MaxMemoryBytes) + `"}`: nil,
		`{}`:                   {},
		`{"phase":"Starting"}`: {Phase: v1alpha1.GameStarting},
	} {
		if diff := cmp.Diff(want, memoryOf([]byte(header))); diff != "" {
			t.Errorf("%.40q (-want +got):\n%s", header, diff)
		}
	}
}

// When the process began is written with what it says, and alone only where another one is written: what it
// said is taken for that one's.
func TestANewProcessIsWritten(t *testing.T) {
	began := func(at time.Time) *said {
		s := report()
		s.report.Memory = &reportapi.Memory{Started: &at}
		return s
	}
	stored := func(s *v1alpha1.Server) { s.Status.Game.Started = &metav1.Time{Time: noon} }
	for name, c := range map[string]struct {
		server *v1alpha1.Server
		said   *said
		want   string
	}{
		"none is written":   {server(), began(noon), ""},
		"it is written":     {server(stored), began(noon), ""},
		"an earlier one is": {server(stored), began(noon.Add(time.Minute)), reasonOther},
		"kinds of an earlier version store nothing": {server(), func() *said {
			s := began(noon)
			s.report.Memory.CountsPlayers, s.report.Memory.Phase = true, v1alpha1.GameReady
			return s
		}(), ""},
		"this one isn't known":       {server(stored), report(), reasonOther},
		"something else has changed": {server(), func() *said { s := began(noon); players(1)(s.report); return s }(), reasonPlayers},
	} {
		got := compare(c.server, c.said)
		if got.reason != c.want {
			t.Errorf("%s: written because of %q, want %q", name, got.reason, c.want)
		}
		if got.reason == reasonPlayers && !got.status.Game.Started.Time.Equal(noon) {
			t.Errorf("%s: started %s, want %s", name, got.status.Game.Started, noon)
		}
	}
}
