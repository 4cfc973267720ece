package page

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The plot's size, in units of its own: it is as wide as the page lets it be.
const (
	plotWidth, plotHeight = 720, 216
	plotLeft, plotBottom  = 44, 32
	plotTop, plotRight    = 16, 10
	plotDay               = 24 * time.Hour
	// plotStep is what one point stands for: the most players at once in that time.
	plotStep = 5 * time.Minute
	maxPlot  = int(plotDay / plotStep)
)

// plot is a day's players as an SVG has them, and as a table.
type plot struct {
	// Area and Line are the path of the players.
	Area, Line string
	// Sleeps are when the server was asleep.
	Sleeps []band
	// Hours and Levels are the axes.
	Hours, Levels []tick
	// Words say it in a sentence.
	Words string
	// Table has a row an hour.
	Table []hourRow

	Width, Height, Left, Right, Base int
}

type band struct{ X, Y, Width, Height int }

type tick struct {
	X, Y int
	Text string
}

type hourRow struct {
	Hour   string
	Most   int
	Asleep string
}

// bucket is what is left of the samples of a step, or of an hour.
type bucket struct {
	most   int
	some   bool
	asleep time.Duration
}

// newPlot draws the day that ends now, or nothing where there are no samples of it.
func newPlot(samples []Sample, now time.Time) *plot {
	from := now.Add(-plotDay)
	steps := bucketed(samples, from, now, plotStep)
	most, some := 0, false
	for _, b := range steps {
		most, some = max(most, b.most), some || b.some
	}
	if !some {
		return nil
	}
	p := &plot{Width: plotWidth, Height: plotHeight, Left: plotLeft, Right: plotWidth - plotRight, Base: plotHeight - plotBottom}
	top := scaleTop(most)
	p.draw(steps, top)
	for _, level := range []int{0, top / 2, top} {
		p.Levels = append(p.Levels, tick{plotLeft, y(level, top), strconv.Itoa(level)})
	}
	for at := from.UTC().Truncate(6 * time.Hour).Add(6 * time.Hour); at.Before(now); at = at.Add(6 * time.Hour) {
		p.Hours = append(p.Hours, tick{x(int(at.Sub(from) / plotStep)), plotHeight - 8, at.Format("15:04")})
	}
	p.table(samples, from, now)
	p.Words = fmt.Sprintf("At most %d played at once in the last 24 hours.", most)
	if asleep := total(steps); asleep > 0 {
		p.Words += fmt.Sprintf(" The server was asleep for %s.", hoursAndMinutes(asleep))
	}
	return p
}

// bucketed puts samples into steps. A sample counts until the next one.
func bucketed(samples []Sample, from, now time.Time, step time.Duration) []bucket {
	buckets := make([]bucket, (now.Sub(from)+step-1)/step)
	for i, s := range samples {
		until := now
		if i+1 < len(samples) && samples[i+1].At.Before(now) {
			until = samples[i+1].At
		}
		begin := s.At
		if begin.Before(from) {
			begin = from
		}
		for begin.Before(until) {
			k := int(begin.Sub(from) / step)
			end := from.Add(time.Duration(k+1) * step)
			if end.After(until) {
				end = until
			}
			b := &buckets[k]
			b.some, b.most = true, max(b.most, s.Players)
			if s.Asleep {
				b.asleep += end.Sub(begin)
			}
			begin = end
		}
	}
	return buckets
}

// draw makes the paths: steps, since nobody plays by halves. Where nothing is known the line has a
// gap.
func (p *plot) draw(steps []bucket, top int) {
	var line, area strings.Builder
	drawing := false
	for i, b := range steps {
		if !b.some {
			if drawing {
				fmt.Fprintf(&area, "V%dZ", p.Base)
			}
			drawing = false
			continue
		}
		if drawing {
			fmt.Fprintf(&line, "V%dH%d", y(b.most, top), x(i+1))
			fmt.Fprintf(&area, "V%dH%d", y(b.most, top), x(i+1))
		} else {
			fmt.Fprintf(&line, "M%d %dH%d", x(i), y(b.most, top), x(i+1))
			fmt.Fprintf(&area, "M%d %dV%dH%d", x(i), p.Base, y(b.most, top), x(i+1))
		}
		drawing = true
		if b.asleep > plotStep/2 {
			p.sleep(i)
		}
	}
	if drawing {
		fmt.Fprintf(&area, "V%dZ", p.Base)
	}
	p.Line, p.Area = line.String(), area.String()
}

// sleep marks a step, with the one before where that is marked too.
func (p *plot) sleep(step int) {
	if n := len(p.Sleeps); n > 0 && p.Sleeps[n-1].X+p.Sleeps[n-1].Width == x(step) {
		p.Sleeps[n-1].Width = x(step+1) - p.Sleeps[n-1].X
		return
	}
	p.Sleeps = append(p.Sleeps, band{x(step), plotTop, x(step+1) - x(step), p.Base - plotTop})
}

// table says the same by hours.
func (p *plot) table(samples []Sample, from, now time.Time) {
	for i, b := range bucketed(samples, from, now, time.Hour) {
		if !b.some {
			continue
		}
		row := hourRow{Hour: from.Add(time.Duration(i) * time.Hour).UTC().Format("2 Jan 15:04"), Most: b.most}
		if minutes := int(b.asleep.Round(time.Minute).Minutes()); minutes > 0 {
			row.Asleep = strconv.Itoa(minutes) + " min"
		}
		p.Table = append(p.Table, row)
	}
}

func hoursAndMinutes(d time.Duration) string {
	minutes := int(d.Round(time.Minute).Minutes())
	if minutes < 60 {
		return fmt.Sprintf("%d min", minutes)
	}
	return fmt.Sprintf("%d h %d min", minutes/60, minutes%60)
}

func total(steps []bucket) time.Duration {
	var asleep time.Duration
	for _, b := range steps {
		asleep += b.asleep
	}
	return asleep
}

// scaleTop is an even number that the most players fit below.
func scaleTop(most int) int {
	for _, top := range []int{2, 4, 10, 20, 40, 100, 200, 400, 1000} {
		if most <= top {
			return top
		}
	}
	return (most/1000 + 1) * 1000
}

func x(step int) int {
	return plotLeft + step*(plotWidth-plotLeft-plotRight)/maxPlot
}

func y(players, top int) int {
	base := plotHeight - plotBottom
	return base - players*(base-plotTop)/top
}

// wakeView is a wake with its bar.
type wakeView struct {
	Asked, Took, Message string
	Bar                  []stageView
}

type stageView struct {
	// X and Width are in thousandths of the longest wake that is shown.
	X, Width int
	// Number is which colour it has.
	Number int
	Name   string
	Took   string
}

const barWidth = 1000

func wakeViews(wakes []Wake) []wakeView {
	longest := time.Duration(1)
	for i := range wakes {
		longest = max(longest, wakes[i].Took)
	}
	views := make([]wakeView, 0, len(wakes))
	for i := range wakes {
		w := &wakes[i]
		v := wakeView{Asked: humanTime(w.Asked), Took: seconds(w.Took), Message: w.Message}
		var before time.Duration
		for k, stage := range w.Stages {
			from, to := int(before*barWidth/longest), int((before+stage.Took)*barWidth/longest)
			v.Bar = append(v.Bar, stageView{
				X: from, Width: min(to, barWidth) - from, Number: k % 6, Name: stage.Name, Took: seconds(stage.Took),
			})
			before += stage.Took
		}
		views = append(views, v)
	}
	return views
}
