package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"dormouse.dev/dormouse/test/chaos/memory"
	"dormouse.dev/dormouse/test/chaos/schedule"
	"dormouse.dev/dormouse/test/env"
)

const mib = 1 << 20

// Report is what chaos.json has, and what a failing run tells besides.
type Report struct {
	OK bool `json:"ok"`
	// Command repeats the run.
	Command         string  `json:"command"`
	Seed            uint64  `json:"seed"`
	DurationSeconds float64 `json:"duration_s"`
	// PlayedSeconds is how long players were there.
	PlayedSeconds float64 `json:"played_s"`

	Faults map[schedule.Kind]*FaultFigures `json:"faults"`
	// FaultErrors are faults that could not be done, or after which the cluster
	// did not become whole again.
	FaultErrors []string `json:"fault_errors,omitempty"`

	// Sessions are counted by transport, and by whether they went to a server
	// straight, through a resolver, or nowhere.
	Sessions map[string]*PathCounts `json:"sessions"`
	// SkippedVisits are players who did not come because too many were there.
	SkippedVisits int `json:"skipped_visits"`
	// Surviving are the messages of sessions whose way was whole all the time,
	// Broken those of the others.
	Surviving MessageCounts `json:"messages_on_surviving_paths"`
	Broken    MessageCounts `json:"messages_on_broken_paths"`

	Wakes  int      `json:"wakes"`
	Sleeps int      `json:"sleeps"`
	Stuck  []string `json:"stuck"`
	// WakeLatency is the time from a player's dial to its first reply, of those
	// who came to a sleeping service that boots at once, with no fault around.
	WakeLatency Latency `json:"wake_first_reply_ms"`

	MemoryRule string                     `json:"memory_rule"`
	Memory     map[string]*ProgramFigures `json:"memory"`
	// Grew tells of each process that used ever more memory.
	Grew []string `json:"grew"`

	// Failures tell of each session that lost something on a surviving path.
	Failures []string `json:"failures"`
	// Excused tell of those on broken ones.
	Excused []string `json:"excused"`
	// Describe is the games' namespace when something failed.
	Describe string `json:"-"`
}

// FaultFigures are those of all faults of a kind.
type FaultFigures struct {
	Count int `json:"count"`
	// Sessions were on while one was under way or recovered from.
	Sessions int `json:"sessions_meanwhile"`
	// LostSessions and LostMessages had their way broken by it.
	LostSessions int    `json:"sessions_lost_on_broken_paths"`
	LostMessages uint64 `json:"messages_lost_on_broken_paths"`
	// Failed had their way whole.
	Failed int `json:"sessions_lost_on_surviving_paths"`
	// FirstReplySeconds is the longest that somebody meanwhile waited for a first
	// reply on a whole way: a wake may wait for what is broken.
	FirstReplySeconds float64 `json:"longest_first_reply_s"`
	// WholeSeconds is the longest time until nothing was missing.
	WholeSeconds float64 `json:"longest_until_whole_s"`
}

// PathCounts count sessions by their way.
type PathCounts struct {
	Direct   int `json:"direct"`
	Resolver int `json:"resolver"`
	Unserved int `json:"unserved"`
}

// MessageCounts count sessions and their messages.
type MessageCounts struct {
	Sessions     int    `json:"sessions"`
	LostSessions int    `json:"sessions_that_lost_something"`
	Sent         uint64 `json:"sent"`
	Received     uint64 `json:"received"`
	Lost         uint64 `json:"lost"`
}

// Latency sums up times in milliseconds.
type Latency struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	Max   float64 `json:"max"`
}

// ProgramFigures are a program's, in bytes. First, Last and the rest come from
// the process that was observed for longest; Max from all.
type ProgramFigures struct {
	Processes          int     `json:"processes"`
	Assessed           int     `json:"processes_judged"`
	Grew               int     `json:"processes_that_grew"`
	LongestLifeSeconds float64 `json:"longest_life_s"`
	First              float64 `json:"first_resident"`
	Last               float64 `json:"last_resident"`
	Max                float64 `json:"max_resident"`
	SecondQuarter      float64 `json:"second_quarter_median_resident"`
	LastQuarter        float64 `json:"last_quarter_median_resident"`
	FirstHeap          float64 `json:"first_heap"`
	LastHeap           float64 `json:"last_heap"`
	LastGoroutines     float64 `json:"last_goroutines"`
	MaxGoroutines      float64 `json:"max_goroutines"`
	LastFDs            float64 `json:"last_open_fds"`
	MaxFDs             float64 `json:"max_open_fds"`
}

func newReport(r *run, played time.Duration) *Report {
	return &Report{
		Command: r.command,
		Seed:    r.plan.Seed, DurationSeconds: r.plan.Duration.Seconds(), PlayedSeconds: played.Seconds(),
		Faults: map[schedule.Kind]*FaultFigures{}, Sessions: map[string]*PathCounts{"tcp": {}, "udp": {}},
		SkippedVisits: r.skipped, Stuck: []string{}, Failures: []string{}, Excused: []string{},
		MemoryRule: memory.Rule, Memory: map[string]*ProgramFigures{env.Operator: {}, env.Resolver: {}}, Grew: []string{},
	}
}

// Failed reports whether something went wrong.
func (p *Report) Failed() bool { return !p.OK }

// Problems are what went wrong, a sentence each.
func (p *Report) Problems() []string {
	var problems []string
	for _, list := range []struct {
		what  string
		lines []string
	}{
		{"A fault went wrong", p.FaultErrors},
		{"Stuck", p.Stuck},
		{"Its memory grew", p.Grew},
		{"Lost on a surviving path", p.Failures},
	} {
		for _, line := range list.lines {
			problems = append(problems, list.what+": "+line)
		}
	}
	return problems
}

// finish sums everything up.
func (p *Report) finish(r *run) {
	var outages []Outage
	for _, e := range r.events {
		outages = append(outages, e.outages...)
		f := p.fault(e.Kind)
		f.Count++
		f.WholeSeconds = max(f.WholeSeconds, e.whole.Sub(e.began).Seconds())
		if e.err != nil {
			p.FaultErrors = append(p.FaultErrors, fmt.Sprintf("fault %d: %v", e.number, e.err))
		}
	}
	var woken []time.Duration
	for _, s := range r.ledger.records {
		p.count(s)
		var around []*event
		for _, e := range r.events {
			if e.overlaps(s.Dialed, s.Ended) {
				around = append(around, e)
				p.fault(e.Kind).Sessions++
			}
		}
		by := excuse(s.Session, outages, nodeOf(r.env.Cluster))
		p.verdict(s, by, r.events, around)
		for _, e := range around {
			if wait := s.stats.FirstReply.Sub(s.Dialed).Seconds(); by == nil && e.overlaps(s.Dialed, s.stats.FirstReply) {
				p.fault(e.Kind).FirstReplySeconds = max(p.fault(e.Kind).FirstReplySeconds, wait)
			}
		}
		calm := !slices.ContainsFunc(r.events, func(e *event) bool { return e.overlaps(s.Dialed, s.stats.FirstReply) })
		if s.asleep && calm && s.Loss == "" && s.boot == 0 {
			woken = append(woken, s.stats.FirstReply.Sub(s.Dialed))
		}
	}
	p.WakeLatency = latencyOf(woken)
	p.Wakes, p.Sleeps, _ = r.phases.counts()
	for _, l := range r.memory.All() {
		p.assess(l)
	}
	p.OK = len(p.Problems()) == 0
}

func (p *Report) fault(k schedule.Kind) *FaultFigures {
	if p.Faults[k] == nil {
		p.Faults[k] = &FaultFigures{}
	}
	return p.Faults[k]
}

// count counts a session by its way.
func (p *Report) count(s *record) {
	counts := p.Sessions[s.Network]
	switch {
	case s.stats.FirstReply.IsZero():
		counts.Unserved++
	case s.direct:
		counts.Direct++
	default:
		counts.Resolver++
	}
}

// verdict counts what a session lost, as excused by an outage or not.
func (p *Report) verdict(s *record, by *Outage, all, around []*event) {
	m := &p.Surviving
	if by != nil {
		m = &p.Broken
	}
	m.Sessions++
	m.Sent += s.stats.Sent
	m.Received += s.stats.Received
	m.Lost += s.stats.Lost
	if s.Loss == "" {
		return
	}
	m.LostSessions++
	if by != nil {
		f := p.fault(all[by.Fault-1].Kind)
		f.LostSessions++
		f.LostMessages += s.stats.Lost
		p.Excused = append(p.Excused, s.story(around))
		return
	}
	for _, e := range around {
		p.fault(e.Kind).Failed++
	}
	p.Failures = append(p.Failures, s.story(around))
}

// assess adds what was seen of one process.
func (p *Report) assess(l memory.Life) {
	f := p.Memory[l.Program]
	f.Processes++
	before, after, assessed, grew := l.Growth()
	if assessed {
		f.Assessed++
	}
	if grew {
		f.Grew++
		p.Grew = append(p.Grew, fmt.Sprintf("%s in %s, from %.1f MiB in the second quarter of %s to %.1f MiB in the last one",
			l.Program, l.Pod, before/mib, l.Observed().Round(time.Second), after/mib))
	}
	for _, s := range l.Samples {
		f.Max = max(f.Max, s.Resident)
		f.MaxGoroutines = max(f.MaxGoroutines, s.Goroutines)
		f.MaxFDs = max(f.MaxFDs, s.FDs)
	}
	if life := l.Observed().Seconds(); life >= f.LongestLifeSeconds {
		first, last := l.Samples[0], l.Samples[len(l.Samples)-1]
		f.LongestLifeSeconds = life
		f.First, f.Last, f.SecondQuarter, f.LastQuarter = first.Resident, last.Resident, before, after
		f.FirstHeap, f.LastHeap, f.LastGoroutines, f.LastFDs = first.Heap, last.Heap, last.Goroutines, last.FDs
	}
}

// latencyOf takes the nearest rank: each figure is one that was measured.
func latencyOf(times []time.Duration) Latency {
	if len(times) == 0 {
		return Latency{}
	}
	slices.Sort(times)
	rank := func(q float64) float64 {
		d := times[max(int(math.Ceil(q*float64(len(times))))-1, 0)]
		return math.Round(float64(d)/float64(time.Microsecond)) / 1000
	}
	return Latency{Count: len(times), P50: rank(0.5), P90: rank(0.9), Max: rank(1)}
}

// Write writes chaos.json.
func (p *Report) Write(path string) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// Print tells the report to a person.
func (p *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "\n%-26s %5s %9s %22s %16s %12s %12s\n", "fault", "times", "sessions", "lost, way broken", "lost, way whole", "first reply", "all whole")
	for _, k := range schedule.Kinds() {
		if f := p.Faults[k]; f != nil {
			fmt.Fprintf(w, "%-26s %5d %9d %9d (%5d msgs.) %16d %10.1f s %10.1f s\n",
				k, f.Count, f.Sessions, f.LostSessions, f.LostMessages, f.Failed, f.FirstReplySeconds, f.WholeSeconds)
		}
	}
	for _, network := range []string{"tcp", "udp"} {
		s := p.Sessions[network]
		fmt.Fprintf(w, "%s sessions: %d direct, %d through a resolver, %d never served\n", network, s.Direct, s.Resolver, s.Unserved)
	}
	for _, m := range []struct {
		what string
		MessageCounts
	}{{"surviving", p.Surviving}, {"broken", p.Broken}} {
		fmt.Fprintf(w, "on %s paths: %d sessions sent %d messages and lost %d; %d sessions lost something\n", m.what, m.Sessions, m.Sent, m.Lost, m.LostSessions)
	}
	fmt.Fprintf(w, "%d wakes, %d sleeps, %d services stuck; first reply of a sleeping service (%d): p50 %.0f ms, p90 %.0f ms, max %.0f ms\n",
		p.Wakes, p.Sleeps, len(p.Stuck), p.WakeLatency.Count, p.WakeLatency.P50, p.WakeLatency.P90, p.WakeLatency.Max)
	for _, program := range []string{env.Operator, env.Resolver} {
		f := p.Memory[program]
		fmt.Fprintf(w, "%s: longest life %.0f s, resident %.1f MiB at first, %.1f at last, %.1f at most; %d of %d processes judged, %d grew\n",
			program, f.LongestLifeSeconds, f.First/mib, f.Last/mib, f.Max/mib, f.Assessed, f.Processes, f.Grew)
	}
	for _, problem := range p.Problems() {
		fmt.Fprintln(w, problem)
	}
	if p.Failed() {
		fmt.Fprintf(w, "%s\nFAILED with seed %d; to repeat: %s\n", p.Describe, p.Seed, p.Command)
		return
	}
	fmt.Fprintf(w, "nothing was lost on a surviving path; seed %d\n", p.Seed)
}
