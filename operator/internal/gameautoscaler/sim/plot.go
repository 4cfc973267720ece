package sim

import (
	"fmt"
	"strings"
	"time"
)

// Plot is a week of a trace without a forecast and with one: the players, the Servers, and who
// had to wait.
type Plot struct {
	trace         *Trace
	without, with *Outcome
}

const (
	plotWidth, plotHeight = 960, 470
	left, right           = 110, 945
	// The panels' bases and height.
	playersBase, withoutBase, withBase, panel = 150, 285, 430, 100
	every                                     = 20 * time.Minute // of the players' curve
)

// Write writes the week of the flash crowd as SVG.
func (p *Plot) Write(path string) error { return writeFile(path, []byte(p.svg())) }

func (p *Plot) svg() string {
	from := p.trace.Crowd.Truncate(week)
	begin := p.trace.Begin.AddDate(0, 0, 7*int(from/week))
	from = begin.Sub(p.trace.Begin)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, "<title>A week of players and Servers, without a forecast and with one (seed %d)</title>\n", p.trace.Seed)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, plotHeight)
	for d := range 8 {
		day := begin.AddDate(0, 0, d)
		x := xOf(day.Sub(begin))
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#ddd"/>`, x, playersBase-panel, withBase)
		if d < 7 {
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#333">%s</text>`, x+4, withBase+18, day.Format("Mon Jan 2"))
		}
	}
	b.WriteString("\n")

	// Players are those who would play if nobody waited.
	most := float64(p.trace.Peak)
	fmt.Fprintf(&b, `<path d="M%d %d`, left, playersBase)
	for at := time.Duration(0); at <= week; at += every {
		fmt.Fprintf(&b, "L%.1f %.1f", xOf(at), playersBase-panel*float64(p.trace.playing(from+at))/most)
	}
	fmt.Fprintf(&b, `V%dZ" fill="#9bb8d9"/>`+"\n", playersBase)
	axis(&b, playersBase, "players", p.trace.Peak)

	servers := (p.trace.Peak + room - 1) / room
	p.panel(&b, p.without, from, withoutBase, servers, "#777")
	p.panel(&b, p.with, from, withBase, servers, "#2a7f4f")
	axis(&b, withoutBase, "Servers,", servers)
	axis(&b, withBase, "Servers,", servers)
	fmt.Fprintf(&b, `<text x="8" y="%d" fill="#333">%s</text>`, withoutBase-panel/2+24, nameActivePlayers)
	fmt.Fprintf(&b, `<text x="8" y="%d" fill="#333">%s</text>`, withBase-panel/2+24, nameForecast)
	fmt.Fprintf(&b, `<text x="%d" y="28" fill="#333">A week with a flash crowd. Each red stroke is a player who had to wait; where there is no bar the game sleeps.</text>`+"\n", left)
	b.WriteString("</svg>\n")
	return b.String()
}

// panel draws the Servers of a week, and a stroke for each player who waited.
func (p *Plot) panel(b *strings.Builder, o *Outcome, from time.Duration, base, most int, color string) {
	y := func(n int) float64 { return float64(base) - panel*float64(n)/float64(most) }
	n := 0
	for _, s := range o.steps {
		if s.at <= from {
			n = s.servers
		}
	}
	fmt.Fprintf(b, `<path d="M%d %dV%.1f`, left, base, y(n))
	for _, s := range o.steps {
		if s.at > from && s.at <= from+week {
			fmt.Fprintf(b, "H%.1fV%.1f", xOf(s.at-from), y(s.servers))
		}
	}
	fmt.Fprintf(b, `H%dV%dZ" fill="%s" fill-opacity=".55"/>`+"\n"+`<path d="`, right, base, color)
	for i, d := range o.waited {
		if at := p.trace.Players[i].At; d > 0 && at >= from && at < from+week {
			fmt.Fprintf(b, "M%.1f %dv-9", xOf(at-from), base-panel)
		}
	}
	b.WriteString(`" stroke="#c22" stroke-width="1.2"/>` + "\n")
}

func axis(b *strings.Builder, base int, name string, most int) {
	fmt.Fprintf(b, `<path d="M%d %dV%dH%d" stroke="#333" fill="none"/>`, left, base-panel, base, right)
	fmt.Fprintf(b, `<text x="8" y="%d" fill="#333">%s</text>`, base-panel/2+8, name)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" fill="#333">%d</text>`, left-5, base-panel+10, most)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" fill="#333">0</text>`+"\n", left-5, base)
}

// xOf is where a time of the week is.
func xOf(at time.Duration) float64 { return left + (right-left)*float64(at)/float64(week) }

// playing is how many play at a time if nobody waits.
func (t *Trace) playing(at time.Duration) int {
	n := 0
	for _, p := range t.Players {
		if p.At <= at && at < p.At+p.Plays {
			n++
		}
	}
	return n
}
