package planner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestAScheduleWishesWhileItsWindowIsOpen(t *testing.T) {
	const berlin, newYork = "Europe/Berlin", "America/New_York"
	type want struct {
		Replicas int32
		Reason   string
		// Again is when to look again, by the clocks there.
		Again string
	}
	for name, test := range map[string]struct {
		cron, zone string
		duration   time.Duration
		now        string
		want       want
	}{
		"before it opens":          {"0 18 * * *", berlin, 5 * time.Hour, "2026-06-01 17:59:59 CEST", want{-1, reasons.WindowClosed, "2026-06-01 18:00:00 CEST"}},
		"as it opens":              {"0 18 * * *", berlin, 5 * time.Hour, "2026-06-01 18:00:00 CEST", want{7, reasons.WindowOpen, "2026-06-01 23:00:00 CEST"}},
		"before it closes":         {"0 18 * * *", berlin, 5 * time.Hour, "2026-06-01 22:59:59 CEST", want{7, reasons.WindowOpen, "2026-06-01 23:00:00 CEST"}},
		"as it closes":             {"0 18 * * *", berlin, 5 * time.Hour, "2026-06-01 23:00:00 CEST", want{-1, reasons.WindowClosed, "2026-06-02 18:00:00 CEST"}},
		"past midnight":            {"0 22 * * FRI", berlin, 5 * time.Hour, "2026-06-06 01:00:00 CEST", want{7, reasons.WindowOpen, "2026-06-06 03:00:00 CEST"}},
		"past midnight, another":   {"0 22 * * FRI", berlin, 5 * time.Hour, "2026-06-07 01:00:00 CEST", want{-1, reasons.WindowClosed, "2026-06-12 22:00:00 CEST"}},
		"past the year's end":      {"0 22 31 12 *", berlin, 48 * time.Hour, "2027-01-02 21:00:00 CET", want{7, reasons.WindowOpen, "2027-01-02 22:00:00 CET"}},
		"windows that overlap":     {"0 18,20 * * *", berlin, 3 * time.Hour, "2026-06-01 18:30:00 CEST", want{7, reasons.WindowOpen, "2026-06-01 23:00:00 CEST"}},
		"in the second of them":    {"0 18,20 * * *", berlin, 3 * time.Hour, "2026-06-01 21:30:00 CEST", want{7, reasons.WindowOpen, "2026-06-01 23:00:00 CEST"}},
		"windows that touch":       {"0 18,20 * * *", berlin, 2 * time.Hour, "2026-06-01 19:59:59 CEST", want{7, reasons.WindowOpen, "2026-06-01 22:00:00 CEST"}},
		"windows that are apart":   {"0 18,20 * * *", berlin, time.Hour, "2026-06-01 19:30:00 CEST", want{-1, reasons.WindowClosed, "2026-06-01 20:00:00 CEST"}},
		"always open":              {"* * * * *", "UTC", time.Hour, "2026-06-01 12:00:00 UTC", want{7, reasons.WindowOpen, "2026-06-02 05:00:00 UTC"}},
		"in the hour that is none": {"30 2 * * *", berlin, time.Hour, "2026-03-29 03:10:00 CEST", want{7, reasons.WindowOpen, "2026-03-29 04:00:00 CEST"}},
		"just before that hour":    {"30 2 * * *", berlin, time.Hour, "2026-03-29 01:59:59 CET", want{-1, reasons.WindowClosed, "2026-03-29 03:00:00 CEST"}},
		"over that hour":           {"0 1 * * *", berlin, 3 * time.Hour, "2026-03-29 04:59:59 CEST", want{7, reasons.WindowOpen, "2026-03-29 05:00:00 CEST"}},
		"the first of two":         {"30 2 * * *", berlin, time.Hour, "2026-10-25 02:30:00 CEST", want{7, reasons.WindowOpen, "2026-10-25 03:30:00 CET"}},
		"the second of two":        {"30 2 * * *", berlin, time.Hour, "2026-10-25 02:30:00 CET", want{7, reasons.WindowOpen, "2026-10-25 03:30:00 CET"}},
		"between the two":          {"30 2 * * *", berlin, 15 * time.Minute, "2026-10-25 02:10:00 CET", want{-1, reasons.WindowClosed, "2026-10-25 02:30:00 CET"}},
		"from before the longer":   {"30 2 * * *", berlin, 45 * time.Minute, "2026-10-25 02:10:00 CET", want{7, reasons.WindowOpen, "2026-10-25 02:15:00 CET"}},
		"over the longer night":    {"0 22 * * *", berlin, 6 * time.Hour, "2026-10-25 02:59:59 CET", want{7, reasons.WindowOpen, "2026-10-25 03:00:00 CET"}},
		"New York's shorter night": {"0 22 * * *", newYork, 6 * time.Hour, "2026-03-08 04:59:59 EDT", want{7, reasons.WindowOpen, "2026-03-08 05:00:00 EDT"}},
		"New York's longer night":  {"0 22 * * *", newYork, 6 * time.Hour, "2026-11-01 02:59:59 EST", want{7, reasons.WindowOpen, "2026-11-01 03:00:00 EST"}},
		"New York's skipped hour":  {"15 2 * * SUN", newYork, time.Hour, "2026-03-08 03:00:00 EDT", want{7, reasons.WindowOpen, "2026-03-08 04:00:00 EDT"}},
		"New York's doubled hour":  {"15 1 * * SUN", newYork, time.Hour, "2026-11-01 01:20:00 EST", want{7, reasons.WindowOpen, "2026-11-01 02:15:00 EST"}},
		"no zone is UTC":           {"0 18 * * *", "", time.Hour, "2026-06-01 18:10:00 UTC", want{7, reasons.WindowOpen, "2026-06-01 19:00:00 UTC"}},
		"a week":                   {"0 0 * * MON", "UTC", 168 * time.Hour, "2026-06-03 12:00:00 UTC", want{7, reasons.WindowOpen, "2026-09-28 00:00:00 UTC"}},
		"beyond all years":         {"0 0 29 2 */7", "UTC", time.Hour, "2026-06-03 12:00:00 UTC", want{-1, reasons.WindowClosed, "2026-06-04 12:00:00 UTC"}},
		"no cron":                  {"0 18 * *", "UTC", time.Hour, "2026-06-03 12:00:00 UTC", want{-2, reasons.ScheduleInvalid, ""}},
		"no zone of the database":  {"0 18 * * *", "Europe/Atlantis", time.Hour, "2026-06-03 12:00:00 UTC", want{-2, reasons.ScheduleInvalid, ""}},
		"the operator's own zone":  {"0 18 * * *", "Local", time.Hour, "2026-06-03 12:00:00 UTC", want{-2, reasons.ScheduleInvalid, ""}},
	} {
		zone, err := time.LoadLocation(test.zone)
		if err != nil {
			zone = time.UTC
		}
		now := parse(t, zone, test.now)
		p := &v1alpha1.SchedulePolicy{TimeWindow: v1alpha1.TimeWindow{Cron: test.cron, TimeZone: test.zone, Duration: metav1.Duration{Duration: test.duration}}, Replicas: 7, Wake: true}
		w := scheduled(now, p)
		got := want{Replicas: -1, Reason: w.reason}
		if w.replicas != nil {
			got.Replicas = *w.replicas
		}
		if w.failed {
			got.Replicas = -2
		}
		if !w.again.IsZero() {
			got.Again = w.again.In(zone).Format(time.DateTime + " MST")
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s%s", name, diff, w.message)
		}
		if open := w.replicas != nil; open && !w.keepAwake.Equal(w.again) || !open && !w.keepAwake.IsZero() {
			t.Errorf("%s: it keeps the target awake until %s", name, w.keepAwake)
		}
		p.Wake = false
		if w := scheduled(now, p); !w.keepAwake.IsZero() {
			t.Errorf("%s: without wake it keeps the target awake until %s", name, w.keepAwake)
		}
	}
}

// parse reads a time that may be shown twice, by the zone's name for it.
func parse(t *testing.T, zone *time.Location, text string) time.Time {
	t.Helper()
	const layout = time.DateTime + " MST"
	parsed, err := time.ParseInLocation(layout, text, zone)
	if err != nil {
		t.Fatal(err)
	}
	for _, shift := range []time.Duration{0, time.Hour, -time.Hour} {
		if moved := parsed.Add(shift).In(zone); moved.Format(layout) == text {
			return moved
		}
	}
	t.Fatalf("no clock shows %s", text)
	return time.Time{}
}
