package report

import (
	"sync"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

func ofVersion(number string) *v1alpha1.Server {
	return server(func(s *v1alpha1.Server) { s.ResourceVersion = number })
}

// What was written here counts until the cache has it, or something later.
func TestTheNewestServerIsTheLastWritten(t *testing.T) {
	table := newTable()
	table.Wrote(ofVersion("7")) // of a Server that never reported here
	if got := table.Latest(ofVersion("5")).ResourceVersion; got != "5" {
		t.Errorf("a Server without a report is of version %s, want that of the cache", got)
	}
	table.take("server-1", lobby1(), report())
	for i, step := range []struct{ writes, cached, want string }{
		{"", "5", "5"}, {"7", "5", "7"}, {"6", "5", "7"}, {"", "6", "7"}, {"9", "6", "9"}, {"", "9", "9"}, {"", "5", "5"}, {"8", "9", "9"}, {"nonsense", "9", "9"},
	} {
		if step.writes != "" {
			table.Wrote(ofVersion(step.writes))
		}
		if got, want := table.WroteAfter(ofVersion(step.cached)), step.want != step.cached; got != want {
			t.Errorf("step %d: something later than version %s was written: %t, want %t", i, step.cached, got, want)
		}
		if got := table.Latest(ofVersion(step.cached)).ResourceVersion; got != step.want {
			t.Errorf("step %d: the newest beside version %s is %s, want %s", i, step.cached, got, step.want)
		}
	}
}

func TestOneAtATimeHasAServersTurn(t *testing.T) {
	table := newTable()
	end := table.Turn("server-1")
	second := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		defer table.Turn("server-1")()
		close(second)
	})
	select {
	case <-second:
		t.Error("two have a Server's turn at once")
	case <-time.After(20 * time.Millisecond):
	}
	end()
	<-second
	waiting.Wait()
}

// A sidecar that was silent for long reported to another replica meanwhile, most likely.
func TestASidecarComesOnce(t *testing.T) {
	t.Parallel()
	table, at := newTable(), noon
	take := func(sequence uint64, after time.Duration) {
		s := report(func(r *reportapi.Report) { r.Sequence = sequence })
		at = at.Add(after)
		s.at = at
		table.take("server-1", lobby1(), s)
	}
	if table.comes("server-1") {
		t.Error("one comes that has said nothing")
	}
	for i, step := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {reportapi.FreshFor, false}, {time.Second, false}, {reportapi.FreshFor + 1, true}, {time.Second, false}} {
		take(uint64(i+1), step.after)
		if got := table.comes("server-1"); got != step.want {
			t.Errorf("report %d is the first one: %t, want %t", i+1, got, step.want)
		}
	}
}
