package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// cron is a cron expression of five fields. Each is a set of numbers, as bits.
type cron struct {
	minutes, hours, days, months, weekdays uint64
	// either is set where a day must fit one of the two fields for days, and not both: neither
	// begins with '*', as crontab(5) has it.
	either bool
}

// field is what one of the fields may be.
type field struct {
	name        string
	least, most int
	names       []string
}

var fields = [...]field{
	{name: "minute", least: 0, most: 59},
	{name: "hour", least: 0, most: 23},
	{name: "day of the month", least: 1, most: 31},
	{name: "month", least: 1, most: 12, names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	{name: "day of the week", least: 0, most: 7, names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
}

const sunday = 1 << 7

// parseCron reads five fields of numbers, names of months and days, ranges, lists and steps.
func parseCron(text string) (cron, error) {
	words := strings.Fields(text)
	if len(words) != len(fields) {
		return cron{}, fmt.Errorf("it has %d fields, and must have %d", len(words), len(fields))
	}
	var sets [len(fields)]uint64
	for i, word := range words {
		set, err := fields[i].parse(word)
		if err != nil {
			return cron{}, fmt.Errorf("its %s: %w", fields[i].name, err)
		}
		sets[i] = set
	}
	c := cron{minutes: sets[0], hours: sets[1], days: sets[2], months: sets[3], weekdays: sets[4]}
	if c.weekdays&sunday != 0 {
		c.weekdays |= 1
	}
	c.either = words[2][0] != '*' && words[4][0] != '*'
	if !c.either && !c.hasDay() {
		return cron{}, errors.New("no month that it names has such a day")
	}
	return c, nil
}

// hasDay reports whether one of the months has one of the days.
func (c cron) hasDay() bool {
	for month, length := range [...]int{1: 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31} {
		if c.months&(1<<month) != 0 && c.days&(1<<(length+1)-1) != 0 {
			return true
		}
	}
	return false
}

// parse reads a list such as 1,5-20/5,*/2.
func (f field) parse(list string) (uint64, error) {
	var set uint64
	for item := range strings.SplitSeq(list, ",") {
		span, every, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			var err error
			if step, err = strconv.Atoi(every); err != nil || step < 1 || step > f.most {
				return 0, fmt.Errorf("the step of %q must be a number from 1 to %d", item, f.most)
			}
		}
		from, to := f.least, f.most
		if span != "*" {
			first, last, ranged := strings.Cut(span, "-")
			var err error
			if from, err = f.number(first); err != nil {
				return 0, err
			}
			switch {
			case ranged:
				if to, err = f.number(last); err != nil {
					return 0, err
				}
				if to == 0 && from > 0 && f.most == 7 {
					to = 7 // up to Sunday
				}
			case !stepped:
				to = from
			}
		}
		if from > to {
			return 0, fmt.Errorf("%q must begin with the smaller number; make it two ranges", item)
		}
		for n := from; n <= to; n += step {
			set |= 1 << n
		}
	}
	return set, nil
}

func (f field) number(word string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(word, name) {
			return f.least + i, nil
		}
	}
	n, err := strconv.Atoi(word)
	if err != nil || n < f.least || n > f.most {
		return 0, fmt.Errorf("%q must be from %d to %d", word, f.least, f.most)
	}
	return n, nil
}

// fits reports whether a day is one of the expression's.
func (c cron) fits(day time.Time) bool {
	inMonth, inWeek := c.days&(1<<day.Day()) != 0, c.weekdays&(1<<day.Weekday()) != 0
	if c.months&(1<<day.Month()) == 0 {
		return false
	}
	return inMonth && inWeek || c.either && (inMonth || inWeek)
}

// Clocks are times in UTC here: they show what clocks of the time zone show.

// lastShown is the last time from floor to at that clocks show and that fits.
func (c cron) lastShown(at, floor time.Time) (time.Time, bool) {
	day, latest := midnight(at), at.Hour()*60+at.Minute()
	for ; !day.Before(midnight(floor)); day, latest = day.AddDate(0, 0, -1), 24*60-1 {
		if !c.fits(day) {
			continue
		}
		for hour := latest / 60; hour >= 0; hour-- {
			minutes := c.minutes
			if hour == latest/60 {
				minutes &= 1<<(latest%60+1) - 1
			}
			if c.hours&(1<<hour) != 0 && minutes != 0 {
				t := day.Add(time.Duration(hour*60+bits.Len64(minutes)-1) * time.Minute)
				return t, !t.Before(floor)
			}
		}
	}
	return time.Time{}, false
}

// nextShown is the first time from at to before ceiling that clocks show and that fits.
func (c cron) nextShown(at, ceiling time.Time) (time.Time, bool) {
	if rounded := at.Truncate(time.Minute); rounded.Before(at) {
		at = rounded.Add(time.Minute)
	}
	day, earliest := midnight(at), at.Hour()*60+at.Minute()
	for ; day.Before(ceiling); day, earliest = day.AddDate(0, 0, 1), 0 {
		if !c.fits(day) {
			continue
		}
		for hour := earliest / 60; hour < 24; hour++ {
			minutes := c.minutes
			if hour == earliest/60 {
				minutes &^= 1<<(earliest%60) - 1
			}
			if c.hours&(1<<hour) != 0 && minutes != 0 {
				t := day.Add(time.Duration(hour*60+bits.TrailingZeros64(minutes)) * time.Minute)
				return t, t.Before(ceiling)
			}
		}
	}
	return time.Time{}, false
}

func midnight(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
}
