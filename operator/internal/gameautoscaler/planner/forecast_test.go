package planner

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// remembered is what was seen of the hour from 18:00 on Mondays, the last week first, in UTC, and
// of the one before nothing but nobody.
func remembered(room uint32, peaks ...uint16) weekly {
	w := weekly{Room: room}
	for i, peak := range peaks {
		w.Peaks[24+18][i] = peak + 1
		w.Peaks[24+17][i] = 1
	}
	return w
}

func TestAForecastWishesAheadOfPlayers(t *testing.T) {
	evening := func(hour, minute, second int) time.Time {
		return time.Date(2026, 1, 5, hour, minute, second, 0, time.UTC)
	}
	type want struct {
		Replicas         int32
		Reason           string
		Again, KeepAwake string
	}
	wake := v1alpha1.ForecastPolicy{Wake: true}
	falling := remembered(10, 15, 15) // after an hour that is fuller
	falling.Peaks[24+17] = [weeks]uint16{31, 31}
	for name, test := range map[string]struct {
		policy   v1alpha1.ForecastPolicy
		weekly   weekly
		now      time.Time
		bootTime time.Duration
		want     want
	}{
		"nothing is remembered":             {wake, weekly{}, evening(18, 0, 0), 0, want{-1, reasons.ForecastLearning, "18:55:00", ""}},
		"one week is too little":            {wake, remembered(10, 30), evening(18, 0, 0), 0, want{-1, reasons.ForecastLearning, "18:55:00", ""}},
		"unless one is enough":              {v1alpha1.ForecastPolicy{MinWeeks: new(int32(1))}, remembered(10, 30), evening(18, 0, 0), 0, want{3, reasons.PlayersExpected, "18:55:00", ""}},
		"before the lead":                   {wake, remembered(10, 30, 30), evening(17, 54, 59), 0, want{-1, reasons.NobodyExpected, "17:55:00", ""}},
		"in the lead":                       {wake, remembered(10, 30, 30), evening(17, 55, 0), 0, want{3, reasons.PlayersExpected, "18:00:00", "19:00:00"}},
		"in the hour":                       {wake, remembered(10, 30, 30), evening(18, 0, 0), 0, want{3, reasons.PlayersExpected, "18:55:00", "19:00:00"}},
		"in the next one's lead":            {wake, remembered(10, 30, 30), evening(18, 56, 0), 0, want{3, reasons.PlayersExpected, "19:00:00", "19:00:00"}},
		"fewer are expected next":           {wake, falling, evening(17, 56, 0), 0, want{3, reasons.PlayersExpected, "18:00:00", "19:00:00"}},
		"after the hour":                    {wake, remembered(10, 30, 30), evening(19, 0, 0), 0, want{-1, reasons.NobodyExpected, "19:55:00", ""}},
		"on another day":                    {wake, remembered(10, 30, 30), evening(42, 0, 0), 0, want{-1, reasons.NobodyExpected, "18:55:00", ""}},
		"without wake":                      {v1alpha1.ForecastPolicy{}, remembered(10, 30, 30), evening(18, 0, 0), 0, want{3, reasons.PlayersExpected, "18:55:00", ""}},
		"a lead of its own":                 {v1alpha1.ForecastPolicy{Lead: seconds(1800)}, remembered(10, 30, 30), evening(17, 30, 0), 0, want{3, reasons.PlayersExpected, "18:00:00", ""}},
		"no lead":                           {v1alpha1.ForecastPolicy{Lead: seconds(0)}, remembered(10, 30, 30), evening(17, 59, 59), 0, want{-1, reasons.NobodyExpected, "18:00:00", ""}},
		"a game that starts slowly":         {wake, remembered(10, 30, 30), evening(17, 40, 0), 10 * time.Minute, want{3, reasons.PlayersExpected, "18:00:00", "19:00:00"}},
		"a game that starts far too slowly": {wake, remembered(10, 30, 30), evening(17, 29, 59), math.MaxInt64, want{-1, reasons.NobodyExpected, "17:30:00", ""}},
		"a game that starts at once":        {wake, remembered(10, 30, 30), evening(17, 59, 0), time.Millisecond, want{3, reasons.PlayersExpected, "18:00:00", "19:00:00"}},
		"one Server more than is even":      {wake, remembered(10, 31, 31), evening(18, 0, 0), 0, want{4, reasons.PlayersExpected, "18:55:00", "19:00:00"}},
		"room that isn't known":             {wake, remembered(0, 30, 30), evening(18, 0, 0), 0, want{1, reasons.PlayersExpected, "18:55:00", "19:00:00"}},
		"weeks that differ":                 {wake, remembered(10, 50, 10, 20, 30, 40), evening(18, 0, 0), 0, want{4, reasons.PlayersExpected, "18:55:00", "19:00:00"}},
		"the fullest of them":               {v1alpha1.ForecastPolicy{Percentile: new(int32(100))}, remembered(10, 50, 10, 20, 30, 40), evening(18, 0, 0), 0, want{5, reasons.PlayersExpected, "18:55:00", ""}},
		"the emptiest of them":              {v1alpha1.ForecastPolicy{Percentile: new(int32(1))}, remembered(10, 50, 10, 20, 30, 40), evening(18, 0, 0), 0, want{1, reasons.PlayersExpected, "18:55:00", ""}},
		"three of five weeks":               {wake, remembered(10, 30, 0, 30, 0, 30), evening(18, 0, 0), 0, want{3, reasons.PlayersExpected, "18:55:00", "19:00:00"}},
		"two of five weeks":                 {wake, remembered(10, 30, 0, 30, 0, 0), evening(18, 0, 0), 0, want{-1, reasons.NobodyExpected, "18:55:00", ""}},
		"two of five weeks are enough":      {v1alpha1.ForecastPolicy{MinConfidencePercent: new(int32(40))}, remembered(10, 30, 0, 30, 0, 0), evening(18, 0, 0), 0, want{3, reasons.PlayersExpected, "18:55:00", ""}},
		"nobody ever came":                  {v1alpha1.ForecastPolicy{MinConfidencePercent: new(int32(1))}, remembered(10, 0, 0, 0), evening(18, 0, 0), 0, want{-1, reasons.NobodyExpected, "18:55:00", ""}},
		"more than can be":                  {wake, remembered(1, 65534, 65534), evening(18, 0, 0), 0, want{10000, reasons.PlayersExpected, "18:55:00", "19:00:00"}},
		"by other clocks":                   {v1alpha1.ForecastPolicy{TimeZone: "Europe/Berlin"}, remembered(10, 30, 30), evening(17, 0, 0), 0, want{3, reasons.PlayersExpected, "17:55:00", ""}},
		"by clocks half an hour off":        {v1alpha1.ForecastPolicy{TimeZone: "Asia/Kolkata"}, remembered(10, 30, 30), evening(12, 25, 0), 0, want{3, reasons.PlayersExpected, "12:30:00", ""}},
		"by clocks that there aren't":       {v1alpha1.ForecastPolicy{TimeZone: "Europe/Atlantis"}, remembered(10, 30, 30), evening(18, 0, 0), 0, want{-2, reasons.ScheduleInvalid, "", ""}},
	} {
		before := test.weekly
		w, _ := forecast(test.now, &test.policy, test.weekly, Observed{Fresh: true, BootTime: test.bootTime})
		got := want{Replicas: outcomeOf(w).Replicas, Reason: w.reason}
		if w.failed {
			got.Replicas = -2
		}
		if !w.again.IsZero() {
			got.Again = w.again.UTC().Format(time.TimeOnly)
		}
		if !w.keepAwake.IsZero() {
			got.KeepAwake = w.keepAwake.UTC().Format(time.TimeOnly)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s%s", name, diff, w.message)
		}
		if w.message == "" || test.weekly != before {
			t.Errorf("%s: the sentence is %q; what is remembered changed: %t", name, w.message, test.weekly != before)
		}
	}
}

// Players come from 18:00 to 22:00 on weekdays, by the clocks of Berlin, which are put forward in
// the third week. From then on the game is awake before they are.
func TestAForecastLearnsAWeek(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	r := run{spec: fast(v1alpha1.AutoscalerPolicy{Name: "usual", Forecast: &v1alpha1.ForecastPolicy{Wake: true, TimeZone: "Europe/Berlin", Lead: seconds(600)}})}
	begin := time.Date(2026, 3, 16, 0, 0, 0, 0, zone) // the change is on the 29th
	var woke []string
	var last Plan
	for now := begin; now.Before(begin.AddDate(0, 0, 20)); now = now.Add(10 * time.Minute) {
		local := now.In(zone)
		var players int64
		if h := local.Hour(); h >= 18 && h < 22 && local.Weekday() >= time.Monday && local.Weekday() <= time.Friday {
			players = 25
		}
		if players > 0 && r.desired == 0 {
			r.desired = 1 // who comes wakes it
		}
		o := awake(r.desired).plays(players)
		slept := r.desired == 0
		last = r.pass(t, now, o)
		if slept && r.desired > 0 {
			woke = append(woke, local.Format("Jan 2 15:04"))
		}
		if players == 0 && !last.KeepAwake.After(now) {
			r.desired = 0 // it goes to sleep
		}
	}
	want := []string{"Mar 30 17:50", "Mar 31 17:50", "Apr 1 17:50", "Apr 2 17:50", "Apr 3 17:50"}
	if diff := cmp.Diff(want, woke); diff != "" {
		t.Errorf("it woke the game (-want +got):\n%s", diff)
	}
	w := r.history.weeks["usual"]
	// 40 hours came as a surprise in the first two weeks, and 20 were expected in the third.
	if w.Right != 20 || w.Wrong != 40 || w.Room != 10 {
		t.Errorf("it was right about %d and wrong about %d hours, with room for %d", w.Right, w.Wrong, w.Room)
	}
	if m := last.wishes[0].message; !strings.Contains(m, "Nobody is expected before Mon 18:00, and 25 players then. It was right about 20 of 60 hours") {
		t.Errorf("it says %q", m)
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	expects := func(weekly, int) bool { return true }
	var w weekly
	now := t0
	for range 24 * 7 * 12 {
		w = w.remember(now, time.UTC, awake(3).plays(math.MaxInt64), expects)
		now = now.Add(time.Hour)
	}
	for hour, row := range w.Peaks {
		for _, peak := range row {
			if peak != math.MaxUint16 {
				t.Fatalf("of hour %d it remembers %v", hour, row)
			}
		}
	}
	if w.Right+w.Wrong > mostScored || w.Right == 0 {
		t.Errorf("the score is of %d and %d hours", w.Right, w.Wrong)
	}
	text, err := w.stored()
	if err != nil || len(text) > 3<<10 {
		t.Errorf("it is stored in %d bytes: %v", len(text), err)
	}
	back, err := weeklyOf(text)
	if err != nil || back != w {
		t.Errorf("it was stored and read as something else: %v", err)
	}
	for name, text := range map[string]string{"nothing": "", "no base64": "?" + text, "cut off": text[:len(text)-4], "another version": "AA" + text[2:], "more": text + "AAAA"} {
		if w, err := weeklyOf(text); err == nil || w != (weekly{}) {
			t.Errorf("%s: read without an error", name)
		}
	}
}

func TestNothingUnseenIsRemembered(t *testing.T) {
	expects := func(weekly, int) bool { return false }
	stale := awake(3).plays(20).with(func(o *Observed) { o.Fresh = false })
	w := weekly{}.remember(at(0), time.UTC, stale, expects)
	w = w.remember(at(3600), time.UTC, stale, expects)
	if w.Peaks != (weekly{}).Peaks {
		t.Error("stale reports are remembered")
	}
	w = w.remember(at(3700), time.UTC, awake(3).plays(20), expects)
	w = w.remember(at(3800), time.UTC, awake(3).plays(7), expects)
	w = w.remember(at(5*3600), time.UTC, awake(3).plays(0), expects) // nobody looked for three hours
	want := weekly{}.Peaks
	want[24+13][0] = 21
	if w.Peaks != want || w.Wrong != 1 || w.Right != 0 {
		t.Errorf("of the hour it remembers %v, with the score %d and %d", w.Peaks[24+13], w.Right, w.Wrong)
	}
	for range 2 { // a week later, and the hour after
		stale.Players = 0
		w = w.remember(at(3600+7*24*3600), time.UTC, stale, expects)
		w = w.remember(at(7200+7*24*3600), time.UTC, stale, expects)
	}
	if w.Peaks[24+13] != want[24+13] {
		t.Errorf("an hour in which nobody looked is remembered: %v", w.Peaks[24+13])
	}
}

func TestAForecastIsScored(t *testing.T) {
	for name, test := range map[string]struct {
		expected     bool
		players      int64
		right, wrong uint16
	}{
		"they came, as expected":  {true, 5, 1, 0},
		"they came unexpectedly":  {false, 5, 0, 1},
		"they were expected":      {true, 0, 0, 1},
		"nobody was, nobody came": {false, 0, 0, 0},
	} {
		expects := func(weekly, int) bool { return test.expected }
		w := weekly{}.remember(at(0), time.UTC, awake(1).plays(test.players), expects)
		w = w.remember(at(3600), time.UTC, awake(1), expects)
		if w.Right != test.right || w.Wrong != test.wrong {
			t.Errorf("%s: it was right about %d and wrong about %d hours", name, w.Right, w.Wrong)
		}
	}
}
