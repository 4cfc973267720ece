package awake

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
)

const berlin = "Europe/Berlin"

func window(cron string, length time.Duration) v1alpha1.TimeWindow {
	return v1alpha1.TimeWindow{Cron: cron, TimeZone: berlin, Duration: metav1.Duration{Duration: length}}
}

// clock reads a time that Berlin's clocks may show twice, by the zone's name for it.
func clock(t *testing.T, text string) time.Time {
	t.Helper()
	zone, err := time.LoadLocation(berlin)
	if err != nil {
		t.Fatal(err)
	}
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

// asleep is a service with windows that Dormouse put to sleep, after a wake that took so long.
func asleep(took time.Duration, windows ...v1alpha1.TimeWindow) *v1alpha1.ElasticService {
	es := fixture.Lobby(v1alpha1.PhaseAsleep, time.Time{})
	es.UID = "es-1234" // it is woken no earlier than it need be
	es.Spec.Awake = windows
	es.Status.ReplicasBeforeSleep = 1
	es.Status.AsleepTarget = &v1alpha1.AsleepTarget{ScaleTargetRef: es.Spec.ScaleTargetRef, Replicas: 1}
	if took > 0 {
		es.Status.LastWake = &v1alpha1.LastWake{Took: metav1.Duration{Duration: took}}
	}
	return es
}

func TestWindowsKeepAServiceAwake(t *testing.T) {
	evening, midday := window("0 18 * * *", 5*time.Hour), window("0 12 * * *", 90*time.Minute)
	night := window("0 22 * * *", 6*time.Hour)
	type want struct{ Until, By, Next string }
	for name, c := range map[string]struct {
		took    time.Duration
		windows []v1alpha1.TimeWindow
		now     string
		want    want
	}{
		"none":                       {0, nil, "2026-06-01 18:00:00 CEST", want{}},
		"before it opens":            {0, []v1alpha1.TimeWindow{evening}, "2026-06-01 17:59:59 CEST", want{Next: "2026-06-01 18:00:00 CEST"}},
		"as it opens":                {0, []v1alpha1.TimeWindow{evening}, "2026-06-01 18:00:00 CEST", want{"2026-06-01 23:00:00 CEST", "awake[0]", "2026-06-01 23:00:00 CEST"}},
		"just before it closes":      {0, []v1alpha1.TimeWindow{evening}, "2026-06-01 22:59:59 CEST", want{"2026-06-01 23:00:00 CEST", "awake[0]", "2026-06-01 23:00:00 CEST"}},
		"as it closes":               {0, []v1alpha1.TimeWindow{evening}, "2026-06-01 23:00:00 CEST", want{Next: "2026-06-02 18:00:00 CEST"}},
		"over midnight":              {0, []v1alpha1.TimeWindow{night}, "2026-06-02 01:00:00 CEST", want{"2026-06-02 04:00:00 CEST", "awake[0]", "2026-06-02 04:00:00 CEST"}},
		"over the shorter night":     {0, []v1alpha1.TimeWindow{night}, "2026-03-29 01:59:59 CET", want{"2026-03-29 05:00:00 CEST", "awake[0]", "2026-03-29 05:00:00 CEST"}},
		"over the longer night":      {0, []v1alpha1.TimeWindow{night}, "2026-10-25 02:30:00 CET", want{"2026-10-25 03:00:00 CET", "awake[0]", "2026-10-25 03:00:00 CET"}},
		"in the hour that is none":   {0, []v1alpha1.TimeWindow{window("30 2 * * *", time.Hour)}, "2026-03-29 03:00:00 CEST", want{"2026-03-29 04:00:00 CEST", "awake[0]", "2026-03-29 04:00:00 CEST"}},
		"in the hour there is twice": {0, []v1alpha1.TimeWindow{window("30 2 * * *", 20*time.Minute)}, "2026-10-25 02:20:00 CET", want{Next: "2026-10-25 02:30:00 CET"}},
		"the next of two":            {0, []v1alpha1.TimeWindow{evening, midday}, "2026-06-01 09:00:00 CEST", want{Next: "2026-06-01 12:00:00 CEST"}},
		"overlapping ones, by the last": {
			0,
			[]v1alpha1.TimeWindow{evening, window("0 17 * * *", 2*time.Hour)},
			"2026-06-01 17:30:00 CEST",
			want{"2026-06-01 23:00:00 CEST", "awake[0]", "2026-06-01 18:00:00 CEST"},
		},
		"one within another": {
			0,
			[]v1alpha1.TimeWindow{evening, window("0 19 * * *", time.Hour)},
			"2026-06-01 19:30:00 CEST",
			want{"2026-06-01 23:00:00 CEST", "awake[0]", "2026-06-01 23:00:00 CEST"},
		},
		"ones that touch": {
			0,
			[]v1alpha1.TimeWindow{window("0 13 * * *", 5*time.Hour), evening},
			"2026-06-01 17:59:00 CEST",
			want{"2026-06-01 23:00:00 CEST", "awake[1]", "2026-06-01 18:00:00 CEST"},
		},
		"long before, as long as a wake takes": {3 * time.Minute, []v1alpha1.TimeWindow{evening}, "2026-06-01 09:00:00 CEST", want{Next: "2026-06-01 17:57:00 CEST"}},
		"ahead":                                {3 * time.Minute, []v1alpha1.TimeWindow{evening}, "2026-06-01 17:57:00 CEST", want{"2026-06-01 23:00:00 CEST", "awake[0]", "2026-06-01 18:00:00 CEST"}},
		"ahead of the hour that is none":       {3 * time.Minute, []v1alpha1.TimeWindow{window("30 2 * * *", time.Hour)}, "2026-03-29 01:57:00 CET", want{"2026-03-29 04:00:00 CEST", "awake[0]", "2026-03-29 03:00:00 CEST"}},
		"ahead of another, in one":             {3 * time.Minute, []v1alpha1.TimeWindow{midday, window("30 13 * * *", time.Hour)}, "2026-06-01 13:00:00 CEST", want{"2026-06-01 14:30:00 CEST", "awake[1]", "2026-06-01 13:27:00 CEST"}},
		"one that opens in many years":         {0, []v1alpha1.TimeWindow{window("0 0 29 2 */7", time.Hour)}, "2026-06-01 17:00:00 CEST", want{Next: "2026-06-02 17:00:00 CEST"}},
		"never long ahead":                     {time.Hour, []v1alpha1.TimeWindow{evening}, "2026-06-01 17:00:00 CEST", want{Next: "2026-06-01 17:45:00 CEST"}},
		"one that can't be read": {
			0,
			[]v1alpha1.TimeWindow{window("0 18 31 2 *", time.Hour), midday},
			"2026-06-01 12:30:00 CEST",
			want{"2026-06-01 13:30:00 CEST", "awake[1]", "2026-06-01 13:30:00 CEST"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := clock(t, c.now)
			es := asleep(c.took, c.windows...)
			v := Decide(now, es)
			show := func(at time.Time) string {
				if at.IsZero() {
					return ""
				}
				return at.In(now.Location()).Format(time.DateTime + " MST")
			}
			if diff := cmp.Diff(c.want, want{show(v.Until), v.By, show(v.Next)}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if wakes := v.Wakes(es); wakes != (c.want.Until != "") {
				t.Errorf("it wakes the service: %t", wakes)
			}
		})
	}
}

// Ten thousand services of one window would have players wait.
func TestTheServicesOfAWindowAreNotAllWokenAtOnce(t *testing.T) {
	const services = 3000
	opens := clock(t, "2026-06-01 18:00:00 CEST")
	seconds := map[int]int{}
	es := asleep(3*time.Minute, window("0 18 * * *", time.Hour))
	for i := range services {
		es.UID = types.UID(uuid(i))
		begin := Decide(opens.Add(-time.Hour), es).Next
		early := opens.Add(-3 * time.Minute).Sub(begin)
		if early < 0 || early >= spread {
			t.Fatalf("it is woken %s earlier than it need be", early)
		}
		seconds[int(early/time.Second)]++
		if v := Decide(begin, es); !v.Wakes(es) || !v.Next.Equal(opens) {
			t.Fatalf("at %s it is woken: %t", begin, v.Wakes(es))
		}
	}
	for second, n := range seconds {
		if n > 2*services/30 {
			t.Errorf("%d of %d services are woken in second %d", n, services, second)
		}
	}
	// Without a wake that was measured none is woken ahead.
	es.Status.LastWake = nil
	if next := Decide(opens.Add(-time.Hour), es).Next; !next.Equal(opens) {
		t.Errorf("one without a measured wake is woken at %s", next)
	}
}

// uuid is a UID as API servers make them.
func uuid(i int) string {
	sum := sha256.Sum256([]byte{byte(i), byte(i >> 8)})
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// A service that is woken ahead of a window takes less time than before, and is not put to sleep
// and woken once more.
func TestAServiceThatWasWokenAheadStaysAwakeUntilTheWindowOpens(t *testing.T) {
	es := asleep(10*time.Minute, window("0 18 * * *", time.Hour))
	now := clock(t, "2026-06-01 17:50:00 CEST")
	v := Decide(now, es)
	if !v.Wakes(es) {
		t.Fatal("it isn't woken 10m ahead")
	}
	es.Status.Phase, es.Status.AsleepTarget = v1alpha1.PhaseAwake, nil
	es.Status.KeptAwake = &v1alpha1.KeptAwake{Until: &metav1.Time{Time: v.Until}, By: v.By}
	es.Status.LastWake.Took.Duration = time.Minute
	if v := Decide(now.Add(2*time.Minute), es); v.Until.IsZero() {
		t.Error("it isn't kept awake any more once its wake took a minute")
	}
	if v := Decide(clock(t, "2026-06-01 19:00:00 CEST"), es); !v.Until.IsZero() {
		t.Errorf("after the window it is kept awake until %s", v.Until)
	}
}

func TestWhoScalesToZeroInAWindowIsObeyedUntilTheNextOne(t *testing.T) {
	byHand := func(at string) func(*v1alpha1.ElasticService) {
		return func(es *v1alpha1.ElasticService) {
			es.Status.AsleepTarget, es.Status.LastSleepTime = nil, fixture.Micro(clock(t, at))
		}
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.ElasticService)
		now    string
		want   bool
	}{
		"Dormouse put it to sleep before": {func(*v1alpha1.ElasticService) {}, "2026-06-01 18:00:00 CEST", true},
		"it sleeps as the window is written": {func(es *v1alpha1.ElasticService) {
			es.Status.LastSleepTime = fixture.Micro(clock(t, "2026-06-01 19:00:00 CEST"))
		}, "2026-06-01 20:00:00 CEST", true},
		"somebody scaled it to zero before":             {byHand("2026-06-01 17:00:00 CEST"), "2026-06-01 18:00:00 CEST", true},
		"somebody has just scaled it to zero":           {func(es *v1alpha1.ElasticService) { es.Status.Phase, es.Status.AsleepTarget = v1alpha1.PhaseAwake, nil }, "2026-06-01 19:00:00 CEST", false},
		"somebody scaled it to zero in the window":      {byHand("2026-06-01 19:00:00 CEST"), "2026-06-01 22:00:00 CEST", false},
		"the next window":                               {byHand("2026-06-01 19:00:00 CEST"), "2026-06-02 18:00:00 CEST", true},
		"a target that was at zero from the very begin": {func(es *v1alpha1.ElasticService) { es.Status = v1alpha1.ElasticServiceStatus{} }, "2026-06-01 20:00:00 CEST", true},
		"one whose first wake failed": {func(es *v1alpha1.ElasticService) {
			es.Status = v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep, LastSleepTime: fixture.Micro(clock(t, "2026-06-01 20:00:00 CEST"))}
		}, "2026-06-01 20:00:30 CEST", true},
		"somebody scaled it to zero, and annotates later": {func(es *v1alpha1.ElasticService) {
			byHand("2026-06-01 19:00:00 CEST")(es)
			es.Annotations = map[string]string{wellknown.KeepAwakeUntilAnnotation: "2026-06-01T20:30:00+02:00"}
		}, "2026-06-01 20:00:00 CEST", true},
	} {
		es := asleep(0, window("0 18 * * *", 5*time.Hour))
		c.change(es)
		v := Decide(clock(t, c.now), es)
		if v.Until.IsZero() || v.Wakes(es) != c.want {
			t.Errorf("%s: it wakes the service: %t, want %t", name, !c.want, c.want)
		}
	}
}

func TestTheAnnotationKeepsAServiceAwake(t *testing.T) {
	for name, c := range map[string]struct {
		value string
		now   string
		until string
		flaw  bool
	}{
		"until then":                   {"2026-06-01T14:00:00Z", "2026-06-01 15:59:59 CEST", "2026-06-01 16:00:00 CEST", false},
		"no longer":                    {"2026-06-01T14:00:00Z", "2026-06-01 16:00:00 CEST", "", false},
		"longer than a window":         {"2026-06-01T23:30:00+02:00", "2026-06-01 18:30:00 CEST", "2026-06-01 23:30:00 CEST", false},
		"not as long as a window":      {"2026-06-01T20:00:00+02:00", "2026-06-01 18:30:00 CEST", "2026-06-01 23:00:00 CEST", false},
		"no time":                      {"tomorrow", "2026-06-01 12:00:00 CEST", "", true},
		"a bad one, and a window":      {"2026-06-01 20:00", "2026-06-01 18:30:00 CEST", "2026-06-01 23:00:00 CEST", true},
		"a year that can't be written": {"9999-12-31T23:59:59-14:00", "2026-06-01 12:00:00 CEST", "", true},
		"nothing":                      {"", "2026-06-01 12:00:00 CEST", "", true},
	} {
		es := asleep(0, window("0 18 * * *", 5*time.Hour))
		es.Annotations = map[string]string{wellknown.KeepAwakeUntilAnnotation: c.value}
		now := clock(t, c.now)
		v := Decide(now, es)
		got := ""
		if !v.Until.IsZero() {
			got = v.Until.In(now.Location()).Format(time.DateTime + " MST")
		}
		if got != c.until || v.Wakes(es) != (c.until != "") {
			t.Errorf("%s: it is kept awake until %q and woken %t, want until %q", name, got, v.Wakes(es), c.until)
		}
		if (v.Flaw != nil) != c.flaw || c.flaw && v.Flaw.Reason != reasons.AnnotationInvalid {
			t.Errorf("%s: the flaw is %v", name, v.Flaw)
		}
	}
}

func TestWhatIsWrongWithAWindowIsSaid(t *testing.T) {
	for want, w := range map[string]v1alpha1.TimeWindow{
		"spec.awake[1] counts for nothing, because its cron can't be read: no month that it names has such a day": window("0 0 30 2 *", time.Hour),
		"spec.awake[1] counts for nothing, because its timeZone is not a name of the IANA database":               {Cron: "0 0 * * *", TimeZone: "Europe/Atlantis"},
	} {
		v := Decide(fixture.T0, asleep(0, window("0 18 * * *", time.Hour), w))
		if v.Flaw == nil || v.Flaw.Reason != reasons.ScheduleInvalid || !strings.HasPrefix(v.Flaw.Message, want) {
			t.Errorf("it says %v, want %s", v.Flaw, want)
		}
	}
}

// Windows that follow each other without an end would change the status each minute.
func TestWindowsWithoutAnEndAreNotToldAnewEachMinute(t *testing.T) {
	es := asleep(0, window("*/2 * * * *", time.Minute), window("1-59/2 * * * *", time.Minute))
	v := Decide(fixture.T0, es)
	// The status has its times in UTC.
	es.Status.KeptAwake = &v1alpha1.KeptAwake{Until: &metav1.Time{Time: v.Until.UTC()}, By: v.By}
	for minutes := range 6 {
		later := Decide(fixture.At(float64(60*minutes)), es)
		if later.By != v.By || later.Until.String() != v.Until.String() {
			t.Errorf("%d minutes later it is kept awake by %s until %s, and before by %s until %s", minutes, later.By, later.Until, v.By, v.Until)
		}
	}
	if after := Decide(v.Until, es); !after.Until.After(v.Until) {
		t.Errorf("at %s it is kept awake until %s", v.Until, after.Until)
	}
}

// What 16 windows cost in each pass of a service, of which one is far away.
func BenchmarkDecide(b *testing.B) {
	es := asleep(time.Minute)
	for range 15 {
		es.Spec.Awake = append(es.Spec.Awake, window("0 18 * * FRI-SUN", 5*time.Hour))
	}
	es.Spec.Awake = append(es.Spec.Awake, window("0 0 29 2 *", 24*time.Hour))
	b.ReportAllocs()
	for b.Loop() {
		Decide(fixture.T0, es)
	}
}

func TestWhatIsKeptAsleepIsKeptAwakeByNothing(t *testing.T) {
	window := v1alpha1.TimeWindow{Cron: "0 12 * * *", Duration: metav1.Duration{Duration: time.Hour}}
	for name, c := range map[string]struct {
		value  string
		now    float64
		asleep bool
		flaw   bool
		next   float64
	}{
		"before its time is over": {"2026-11-01T12:30:00Z", 60, true, false, 1800},
		"once it is over":         {"2026-11-01T12:30:00Z", 1800, false, false, 3600},
		"what can't be read":      {"noon", 60, false, true, 3600},
		"beyond what times are":   {"9999-12-31T23:59:59Z", 60, false, true, 3600},
	} {
		t.Run(name, func(t *testing.T) {
			es := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-600))
			es.Spec.Awake = []v1alpha1.TimeWindow{window}
			es.Annotations = map[string]string{
				wellknown.KeepAsleepUntilAnnotation: c.value, wellknown.KeepAwakeUntilAnnotation: "2026-11-01T14:00:00Z",
			}
			es.Status.AsleepTarget = &v1alpha1.AsleepTarget{ScaleTargetRef: es.Spec.ScaleTargetRef}
			v := Decide(fixture.At(c.now), es)
			if v.Asleep.IsZero() == c.asleep || v.Until.IsZero() != c.asleep || v.Wakes(es) == c.asleep || !v.Next.Equal(fixture.At(c.next)) {
				t.Errorf("it is kept asleep until %s, and awake until %s; looked at again at %s", v.Asleep, v.Until, v.Next)
			}
			if (v.Flaw != nil) != c.flaw || c.flaw && (v.Flaw.Reason != reasons.AnnotationInvalid || !strings.Contains(v.Flaw.Message, wellknown.KeepAsleepUntilAnnotation)) {
				t.Errorf("it says %v", v.Flaw)
			}
		})
	}
}
