package report

import (
	"testing"

	"dormouse.dev/dormouse/internal/reportapi"
)

func TestDeniedSinceIsIgnoredWhereItCannotBe(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]int64{
		"": 0, "0": 0, "-1": 0, "5": 5, "7": 7, "8": 0, "many": 0, "99999999999999999999": 0,
	} {
		if got := deniedSince(header, &reportapi.Report{Sequence: 7}); got != want {
			t.Errorf("%q is %d, want %d", header, got, want)
		}
	}
}

// A replica that was restarted has heard none of a busy Server's reports, and the status names
// one of a while ago. It writes nothing as long as nothing has changed.
func TestAReplicaThatRestartsWritesNothingOfABusyServer(t *testing.T) {
	c := cluster(t)
	denied := func(r *reportapi.Report) { r.DeletionAllowed = false }
	before := start(t, c, "127.0.0.1:0")
	before.say(next(6, denied))
	before.eventually("the denial is written", func() bool { return before.writes.Load() == 1 })
	before.say(next(7, denied))
	before.stop()

	after := start(t, c, "127.0.0.1:0")
	after.deniedSince = "6"
	after.say(next(41, denied))
	after.stop()
	// Whether it was looked at before that or not.
	if _, err := after.report.writer.write(t.Context(), "server-1"); err != nil {
		t.Fatal(err)
	}
	if n := after.writes.Load(); n != 0 {
		t.Errorf("%d writes, want none", n)
	}
}
