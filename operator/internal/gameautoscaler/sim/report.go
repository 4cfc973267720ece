package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Report is the comparison, for people and for programs.
type Report struct {
	Weeks         int `json:"weeks"`
	LearningWeeks int `json:"learningWeeks"`
	// RoomPerServer is in players.
	RoomPerServer int          `json:"roomPerServer"`
	Seeds         []SeedReport `json:"seeds"`
	// Mean is of the seeds.
	Mean []Row `json:"mean"`
	// Goals compare the forecast with what has none.
	Goals []Goal `json:"goals"`
}

// SeedReport is of one trace.
type SeedReport struct {
	Seed uint64 `json:"seed"`
	// Players is how many come in all weeks, and Peak how many at most would play at a time.
	Players int `json:"players"`
	Peak    int `json:"peak"`
	// What happens, and when.
	FlashCrowd time.Time `json:"flashCrowd"`
	Release    time.Time `json:"release"`
	OutageFrom time.Time `json:"webhookOutageFrom"`
	OutageTo   time.Time `json:"webhookOutageTo"`
	Policies   []Row     `json:"policies"`
}

// Row is what a policy gave.
type Row struct {
	Policy string `json:"policy"`
	Means  string `json:"means"`
	// Counted is of the weeks after those of learning, and All of all.
	Counted Figures `json:"counted"`
	All     Figures `json:"allWeeks"`
}

// Figures are what a table shows of a policy. Times are in seconds; those of waits are of the
// players who waited.
type Figures struct {
	ServerHours       float64 `json:"serverHours"`
	PercentOfAlwaysOn float64 `json:"percentOfAlwaysOn"`
	Players           float64 `json:"players"`
	Waited            float64 `json:"waited"`
	WaitedPercent     float64 `json:"waitedPercent"`
	WaitP50           float64 `json:"waitP50"`
	WaitP99           float64 `json:"waitP99"`
	GaveUp            float64 `json:"gaveUp"`
	ScaleOperations   float64 `json:"scaleOperations"`
}

// Goal is how the forecast compares in the weeks that count. At least 60 % fewer players are to
// wait, at no more than 25 % more server-hours.
type Goal struct {
	Seed               uint64  `json:"seed"` // 0 is the mean of all
	Against            string  `json:"against"`
	FewerWaitPercent   float64 `json:"fewerWaitPercent"`
	MoreServersPercent float64 `json:"moreServerHoursPercent"`
	Met                bool    `json:"met"`
}

const fewerWait, moreServers = 60, 25

// Compare replays a trace of each seed under each policy, and tells progress what it is at. The
// plot is of the first seed.
func Compare(ctx context.Context, seeds []uint64, progress io.Writer) (*Report, *Plot, error) {
	r := &Report{Weeks: Weeks, LearningWeeks: Learning, RoomPerServer: room}
	var plot *Plot
	for _, seed := range seeds {
		t, err := Generate(seed, Weeks, Learning)
		if err != nil {
			return nil, nil, err
		}
		fmt.Fprintf(progress, "seed %d: %d players in %d weeks, %d at a time at most\n", seed, len(t.Players), Weeks, t.Peak)
		outcomes, rows, err := compare(ctx, &t)
		if err != nil {
			return nil, nil, err
		}
		r.Seeds = append(r.Seeds, SeedReport{
			Seed: seed, Players: len(t.Players), Peak: t.Peak,
			FlashCrowd: t.Begin.Add(t.Crowd), Release: t.Begin.Add(t.Release),
			OutageFrom: t.Begin.Add(t.OutageFrom), OutageTo: t.Begin.Add(t.OutageTo), Policies: rows,
		})
		r.Goals = append(r.Goals, goals(seed, rows)...)
		if plot == nil {
			plot = &Plot{trace: &t, without: outcomes[nameActivePlayers], with: outcomes[nameForecast]}
		}
	}
	r.Mean = mean(r.Seeds)
	r.Goals = append(r.Goals, goals(0, r.Mean)...)
	return r, plot, nil
}

func compare(ctx context.Context, t *Trace) (map[string]*Outcome, []Row, error) {
	outcomes := map[string]*Outcome{}
	var rows []Row
	for _, p := range Policies() {
		o, err := Run(ctx, t, &p)
		if err != nil {
			return nil, nil, fmt.Errorf("replay seed %d under %s: %w", t.Seed, p.Name, err)
		}
		outcomes[p.Name] = o
		base := outcomes[nameAlwaysOn]
		rows = append(rows, Row{
			Policy: p.Name, Means: p.Means,
			Counted: figures(&o.Counted, &base.Counted), All: figures(&o.All, &base.All),
		})
	}
	return outcomes, rows, nil
}

func figures(t, alwaysOn *Tally) Figures {
	return Figures{
		ServerHours: t.Ran.Hours(), PercentOfAlwaysOn: percent(t.Ran.Hours(), alwaysOn.Ran.Hours()),
		Players: float64(t.Players), Waited: float64(len(t.Waits)), WaitedPercent: percent(float64(len(t.Waits)), float64(t.Players)),
		WaitP50: t.percentile(50).Seconds(), WaitP99: t.percentile(99).Seconds(),
		GaveUp: float64(t.GaveUp), ScaleOperations: float64(t.Scaled),
	}
}

func percent(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return 100 * a / b
}

// mean is the mean of each policy's figures.
func mean(seeds []SeedReport) []Row {
	var rows []Row
	for i := range seeds[0].Policies {
		row := Row{Policy: seeds[0].Policies[i].Policy, Means: seeds[0].Policies[i].Means}
		for _, s := range seeds {
			row.Counted.add(&s.Policies[i].Counted, float64(len(seeds)))
			row.All.add(&s.Policies[i].All, float64(len(seeds)))
		}
		rows = append(rows, row)
	}
	return rows
}

// add adds a share of b.
func (a *Figures) add(b *Figures, shares float64) {
	a.ServerHours += b.ServerHours / shares
	a.PercentOfAlwaysOn += b.PercentOfAlwaysOn / shares
	a.Players += b.Players / shares
	a.Waited += b.Waited / shares
	a.WaitedPercent += b.WaitedPercent / shares
	a.WaitP50 += b.WaitP50 / shares
	a.WaitP99 += b.WaitP99 / shares
	a.GaveUp += b.GaveUp / shares
	a.ScaleOperations += b.ScaleOperations / shares
}

// goals compare the forecast with the two ways to sleep without one: by load, and with as many
// Servers as the peak needs.
func goals(seed uint64, rows []Row) []Goal {
	by := map[string]*Figures{}
	for i := range rows {
		by[rows[i].Policy] = &rows[i].Counted
	}
	var all []Goal
	for _, against := range []string{nameActivePlayers, nameSleep} {
		f, b := by[nameForecast], by[against]
		g := Goal{
			Seed: seed, Against: against,
			FewerWaitPercent:   100 - percent(f.Waited, b.Waited),
			MoreServersPercent: percent(f.ServerHours, b.ServerHours) - 100,
		}
		g.Met = g.FewerWaitPercent >= fewerWait && g.MoreServersPercent <= moreServers
		all = append(all, g)
	}
	return all
}

// Write writes the report as JSON.
func (r *Report) Write(path string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	return writeFile(path, append(content, '\n'))
}

func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the directory of %s: %w", path, err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
