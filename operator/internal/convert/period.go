package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// period converts the hours in which services may sleep to those in which they are awake, which
// are the rest of each week.
func (c *conversion) period(to *specOut, from *elastiPeriod) {
	if from == nil {
		return
	}
	const path = "spec.enabledPeriod"
	schedule, text := cmp.Or(from.Schedule, elastiSchedule), cmp.Or(from.Duration, elastiDuration)
	duration, err := time.ParseDuration(text)
	if err != nil || duration <= 0 || duration%time.Minute != 0 {
		c.wrong(path+".duration", "it is %q and must be a number of minutes such as 90m or 12h", text)
		return
	}
	starts, ok := weekly(schedule)
	if !ok {
		c.note(path+".schedule", "%q isn't a minute and an hour of some days of the week, and its counterpart spec.awake is about the other hours; it is left out, so that the service may sleep at any time", schedule)
		return
	}
	to.Awake = rest(starts, duration)
	if len(to.Awake) > 0 {
		c.note(path, "it becomes spec.awake, which names the hours in which the service is awake in place of those in which it may sleep")
	}
}

// weekly is when a schedule begins each week, from Sunday on, if it names one time of day and
// some days of the week.
func weekly(schedule string) (starts []time.Duration, ok bool) {
	fields := strings.Fields(schedule)
	if len(fields) != 5 || fields[2] != "*" || fields[3] != "*" {
		return nil, false
	}
	minute, err := strconv.ParseUint(fields[0], 10, 8)
	hour, err2 := strconv.ParseUint(fields[1], 10, 8)
	days, ok := daysOf(fields[4])
	if err != nil || err2 != nil || minute > 59 || hour > 23 || !ok {
		return nil, false
	}
	for _, d := range days {
		starts = append(starts, time.Duration(d)*day+time.Duration(hour)*time.Hour+time.Duration(minute)*time.Minute)
	}
	return starts, true
}

var dayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

// daysOf reads cron's field for days of the week, without steps. Sunday is 0 or 7.
func daysOf(field string) (days []int, ok bool) {
	if field == "*" {
		field = "0-6"
	}
	for part := range strings.SplitSeq(field, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, ok := dayOf(from)
		last := first
		if isRange && ok {
			last, ok = dayOf(to)
		}
		if !ok || last < first {
			return nil, false
		}
		for d := first; d <= last; d++ {
			days = append(days, d%len(dayNames))
		}
	}
	slices.Sort(days)
	return slices.Compact(days), true
}

func dayOf(text string) (d int, ok bool) {
	if i := slices.Index(dayNames, strings.ToUpper(text)); i >= 0 {
		return i, true
	}
	d, err := strconv.Atoi(text)
	return d, err == nil && d >= 0 && d <= len(dayNames)
}

// rest is what a week has beside the times that begin at starts, which are in order, and last for
// a duration. Days with the same hours are one window.
func rest(starts []time.Duration, duration time.Duration) (windows []windowOut) {
	type hours struct{ from, lasts time.Duration }
	days := map[hours][]string{}
	var order []hours
	for i, start := range starts {
		end := start + duration
		next := starts[(i+1)%len(starts)]
		if i == len(starts)-1 {
			next += week
		}
		if next <= end {
			continue
		}
		end %= week
		h := hours{end % day, next - start - duration}
		if days[h] == nil {
			order = append(order, h)
		}
		days[h] = append(days[h], strconv.Itoa(int(end/day)))
	}
	for _, h := range order {
		on := days[h]
		slices.Sort(on)
		field := strings.Join(on, ",")
		if len(on) == len(dayNames) {
			field = "*"
		}
		windows = append(windows, windowOut{
			Cron:     fmt.Sprintf("%d %d * * %s", int(h.from/time.Minute)%60, int(h.from/time.Hour), field),
			TimeZone: "UTC", Duration: short(h.lasts),
		})
	}
	return windows
}
