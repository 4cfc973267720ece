package schedule

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestACronExpressionIsChecked(t *testing.T) {
	for expression, want := range map[string]string{
		"* * * * *":                    "",
		"0 18 * * FRI-SUN":             "",
		"0 18 * * fri,Sat":             "",
		"*/15 8-20/2,22 1 JAN-MAR *":   "",
		"0 0 29 2 *":                   "",
		"0 0 31 2,3 *":                 "",
		"0 0 30 2 MON":                 "", // Mondays in February
		"5/20 0 * * 0-7":               "",
		"0 0 * * 7":                    "",
		"0 0 30 2 *":                   "no month that it names has such a day",
		"0 0 31 4,6,9,11 */2":          "no month that it names has such a day",
		"":                             "it has 0 fields",
		"* * * *":                      "it has 4 fields",
		"* * * * * *":                  "it has 6 fields",
		"60 * * * *":                   `its minute: "60" must be from 0 to 59`,
		"* 24 * * *":                   `its hour: "24" must be from 0 to 23`,
		"* * 0 * *":                    "its day of the month",
		"* * * 13 *":                   "its month",
		"* * * * 8":                    "its day of the week",
		"* * * * SAT-MON":              "must begin with the smaller number",
		"30-10 * * * *":                "must begin with the smaller number",
		"*/0 * * * *":                  "the step",
		"*/ * * * *":                   "the step",
		"*/1/2 * * * *":                "the step",
		"1-2-3 * * * *":                `"2-3" must be`,
		"1,,2 * * * *":                 `"" must be`,
		"-5 * * * *":                   `"" must be`,
		"MON * * * *":                  `"MON" must be`,
		"99999999999999999999 * * * *": "must be from",
	} {
		_, err := parseCron(expression)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", expression, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: got %v, want %q", expression, err, want)
		}
	}
}

const stamp = "2006-01-02 15:04 MST"

// What is due after a time in one zone, and after that, and so on. Both ways give the same.
func TestWindowsOpenRightOnBothClockChangesOfTheYear(t *testing.T) {
	for name, test := range map[string]struct {
		zone, from, cron string
		want             []string
	}{
		"a day as any other": {
			"Europe/Berlin", "2026-06-01 12:00", "30 2 * * *",
			[]string{"2026-06-02 02:30 CEST", "2026-06-03 02:30 CEST"},
		},
		"in the hour that Berlin skips": {
			"Europe/Berlin", "2026-03-28 12:00", "30 2 * * *",
			[]string{"2026-03-29 03:00 CEST", "2026-03-30 02:30 CEST"},
		},
		"several times in the hour that Berlin skips": {
			"Europe/Berlin", "2026-03-29 01:10", "*/20 * * * *",
			[]string{"2026-03-29 01:20 CET", "2026-03-29 01:40 CET", "2026-03-29 03:00 CEST", "2026-03-29 03:20 CEST"},
		},
		"only on the day on which Berlin skips it": {
			"Europe/Berlin", "2026-03-23 12:00", "0 2 * * SUN",
			[]string{"2026-03-29 03:00 CEST", "2026-04-05 02:00 CEST"},
		},
		"at the end of the hour that Berlin skips": {
			"Europe/Berlin", "2026-03-28 12:00", "0 3 * * *",
			[]string{"2026-03-29 03:00 CEST", "2026-03-30 03:00 CEST"},
		},
		"in the hour that Berlin has twice": {
			"Europe/Berlin", "2026-10-24 12:00", "30 2 * * *",
			[]string{"2026-10-25 02:30 CEST", "2026-10-25 02:30 CET", "2026-10-26 02:30 CET"},
		},
		"every hour of the night that is longer": {
			"Europe/Berlin", "2026-10-25 00:30", "0 1-4 * * *",
			[]string{"2026-10-25 01:00 CEST", "2026-10-25 02:00 CEST", "2026-10-25 02:00 CET", "2026-10-25 03:00 CET", "2026-10-25 04:00 CET", "2026-10-26 01:00 CET"},
		},
		"beside the hour that Berlin has twice": {
			"Europe/Berlin", "2026-10-24 12:00", "30 1 * * *",
			[]string{"2026-10-25 01:30 CEST", "2026-10-26 01:30 CET"},
		},
		"in the hour that New York skips": {
			"America/New_York", "2026-03-07 12:00", "30 2 * * *",
			[]string{"2026-03-08 03:00 EDT", "2026-03-09 02:30 EDT"},
		},
		"in the hour that New York has twice": {
			"America/New_York", "2026-10-31 12:00", "30 1 * * *",
			[]string{"2026-11-01 01:30 EDT", "2026-11-01 01:30 EST", "2026-11-02 01:30 EST"},
		},
		"in the half hour that Lord Howe skips": {
			"Australia/Lord_Howe", "2026-10-03 12:00", "15 2 * * *",
			[]string{"2026-10-04 02:30 +11", "2026-10-05 02:15 +11"},
		},
		"midnight, where the change is then": {
			"Africa/Cairo", "2026-04-23 12:00", "0 0 * * *",
			[]string{"2026-04-24 01:00 EEST", "2026-04-25 00:00 EEST"},
		},
		"a leap day":                     {"UTC", "2026-03-01 00:00", "0 0 29 2 *", []string{"2028-02-29 00:00 UTC", "2032-02-29 00:00 UTC"}},
		"a leap day, Berlin's":           {"Europe/Berlin", "2026-03-01 00:00", "59 23 29 2 *", []string{"2028-02-29 23:59 CET"}},
		"one of the two days":            {"UTC", "2026-01-01 00:00", "0 0 13 * FRI", []string{"2026-01-02 00:00 UTC", "2026-01-09 00:00 UTC", "2026-01-13 00:00 UTC"}},
		"both of the two days":           {"UTC", "2026-01-01 00:00", "0 0 */13 * FRI", []string{"2026-02-27 00:00 UTC", "2026-03-27 00:00 UTC"}},
		"Sunday by its other number":     {"UTC", "2026-01-01 00:00", "0 0 * * 7", []string{"2026-01-04 00:00 UTC", "2026-01-11 00:00 UTC"}},
		"Sunday alone, as a range":       {"UTC", "2026-01-01 00:00", "0 0 * * SUN-SUN", []string{"2026-01-04 00:00 UTC", "2026-01-11 00:00 UTC"}},
		"the same by its number":         {"UTC", "2026-01-01 00:00", "0 0 * * 0-0", []string{"2026-01-04 00:00 UTC", "2026-01-11 00:00 UTC"}},
		"by both of its numbers":         {"UTC", "2026-01-01 00:00", "0 0 * * 7-0", []string{"2026-01-04 00:00 UTC", "2026-01-11 00:00 UTC"}},
		"up to Sunday":                   {"UTC", "2026-01-01 00:00", "0 0 * * SAT-SUN", []string{"2026-01-03 00:00 UTC", "2026-01-04 00:00 UTC", "2026-01-10 00:00 UTC"}},
		"from a minute on, every twenty": {"UTC", "2026-01-01 00:00", "5/20 0 * * *", []string{"2026-01-01 00:05 UTC", "2026-01-01 00:25 UTC", "2026-01-01 00:45 UTC", "2026-01-02 00:05 UTC"}},
	} {
		zone, err := time.LoadLocation(test.zone)
		if err != nil {
			t.Fatal(err)
		}
		from, err := time.ParseInLocation("2006-01-02 15:04", test.from, zone)
		if err != nil {
			t.Fatal(err)
		}
		c, err := parseCron(test.cron)
		if err != nil {
			t.Fatal(err)
		}
		var got, back []string
		at := from
		for range test.want {
			next, ok := c.next(at, zone)
			if !ok {
				break
			}
			got, at = append(got, next.Format(stamp)), next
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: due at %q, want %q", name, got, test.want)
		}
		for at = at.Add(time.Second); len(back) < len(test.want); at = at.Add(-time.Nanosecond) {
			last, ok := c.last(at, zone, horizon)
			if !ok {
				break
			}
			back, at = append(back, last.Format(stamp)), last
		}
		slices.Reverse(back)
		if !slices.Equal(back, test.want) {
			t.Errorf("%s: backwards, due at %q, want %q", name, back, test.want)
		}
	}
}

// A time is due when clocks show it: whoever looks at them once a minute finds the same, but for
// what they skip.
func TestWhatIsDueIsWhatClocksShow(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(21, 1))
	pick := func(items ...string) string { return items[random.IntN(len(items))] }
	for range 60 {
		expression := strings.Join([]string{
			pick("*/7", "0", "59", "13,40-45"), pick("*", "1-3", "2", "23", "*/5"),
			pick("*", "*/3", "24-26", "29"), pick("*", "3", "10-11"), pick("*", "*/2", "SUN", "1-5"),
		}, " ")
		c, err := parseCron(expression)
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range []time.Time{time.Date(2026, 3, 27, 0, 0, 0, 0, zone), time.Date(2026, 10, 23, 0, 0, 0, 0, zone)} {
			want, last := time.Time{}, time.Time{}
			begin := from.Add(time.Duration(random.IntN(48*60)) * time.Minute)
			for at := begin.Add(time.Minute); at.Before(begin.Add(72 * time.Hour)); at = at.Add(time.Minute) {
				if c.minutes&(1<<at.Minute()) == 0 || c.hours&(1<<at.Hour()) == 0 || !c.fits(midnight(ShownAt(at, OffsetAt(at, zone)))) {
					continue
				}
				if want.IsZero() {
					want = at
				}
				last = at
			}
			got, ok := c.next(begin, zone)
			skipped := got.Format("15:04") == "03:00" && got.Month() == time.March && got.Day() == 29
			if !skipped && (ok && !got.Equal(want) && !want.IsZero() || !ok && !want.IsZero()) {
				t.Errorf("%q after %s: due at %s, want %s", expression, begin, got, want)
			}
			end := begin.Add(72*time.Hour - time.Minute)
			back, ok := c.last(end, zone, 72*time.Hour-time.Minute)
			skipped = back.Format("15:04") == "03:00" && back.Month() == time.March && back.Day() == 29
			if !skipped && (ok != !last.IsZero() || ok && !back.Equal(last)) {
				t.Errorf("%q before %s: due at %s, want %s", expression, end, back, last)
			}
		}
	}
}

func TestTheSearchForADayIsBounded(t *testing.T) {
	c, err := parseCron("0 0 29 2 */7") // a leap day that is a Sunday: 2032
	if err != nil {
		t.Fatal(err)
	}
	if due, ok := c.next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.UTC); ok {
		t.Errorf("due at %s, beyond the horizon", due)
	}
	if due, ok := c.last(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.UTC, time.Hour); ok {
		t.Errorf("due at %s, before the window", due)
	}
}

func FuzzCron(f *testing.F) {
	for _, seed := range []string{"0 18 * * FRI-SUN", "*/15 8-20/2,22 1 JAN-MAR *", "0 0 30 2 *", "1-2-3 * * * *"} {
		f.Add(seed)
	}
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		c, err := parseCron(expression)
		if err != nil {
			return
		}
		now := time.Date(2026, 3, 28, 12, 0, 0, 0, zone)
		next, ok := c.next(now, zone)
		if ok && !next.After(now) {
			t.Errorf("the next time is %s", next)
		}
		last, ok := c.last(now, zone, 168*time.Hour)
		if ok && (last.After(now) || now.Sub(last) >= 168*time.Hour) {
			t.Errorf("the last time is %s", last)
		}
	})
}
