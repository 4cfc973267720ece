package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"dormouse.dev/dormouse/test/bench/scale/cluster"
)

// figures are what scale.json has.
type figures struct {
	Servers    int `json:"servers"`
	Services   int `json:"services"`
	Processors int `json:"processors"`
	// OperatorMemory is the operator's GOMEMLIMIT.
	OperatorMemory string `json:"operator_memory"`
	// CreatedToReady is from when a watch shows a Server until it shows it Ready.
	CreatedToReady *quantiles `json:"created_to_ready_ms,omitempty"`
	ServerSize     *sizes     `json:"server_size,omitempty"`
	ServiceSize    *sizes     `json:"elasticservice_size,omitempty"`
	// Scrapes are what a read of a program's metrics costs while all are there.
	Scrapes map[string]scrape `json:"scrapes,omitempty"`
	// NewResolver is from when a new resolver Pod was ready until each service's slice has it.
	NewResolver float64 `json:"new_resolver_listed_seconds,omitempty"`
	// NewResolverWakes are the wake calls meanwhile.
	NewResolverWakes answers `json:"new_resolver_wakes"`
	// NewLeaders are the changes of the leader, one after the other.
	NewLeaders []handover `json:"new_leaders,omitempty"`
	Storm      *storm     `json:"wake_storm,omitempty"`
	// Triggered is of as many services again, which have triggers.
	Triggered *triggered `json:"triggers,omitempty"`
	// Restarts are those of programs that ended by themselves while another one was restarted.
	Restarts    map[string]int `json:"restarts_by_themselves,omitempty"`
	FailedCalls int64          `json:"failed_sidecar_calls"`
	// Phases are what each costs.
	Phases map[string]phaseFigures `json:"phases"`
}

// quantiles sum up durations, in milliseconds.
type quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// quantilesOf takes the nearest rank: each figure is one that was measured. Of nothing they are 0.
func quantilesOf(durations []time.Duration) quantiles {
	if len(durations) == 0 {
		return quantiles{}
	}
	sorted := slices.Sorted(slices.Values(durations))
	rank := func(q float64) float64 {
		i := int(math.Ceil(q*float64(len(sorted)))) - 1
		return rounded(float64(sorted[max(i, 0)]) / float64(time.Millisecond))
	}
	return quantiles{P50: rank(0.5), P99: rank(0.99), Max: rank(1)}
}

func (q quantiles) String() string {
	return fmt.Sprintf("p50 %.1f ms   p99 %.1f ms   max %.1f ms", q.P50, q.P99, q.Max)
}

// agents are how the programs call themselves before the API server.
var agents = map[string]string{cluster.OperatorName: cluster.OperatorName, cluster.ResolverName: "dormouse-resolver"}

// print is for people.
func (f *figures) print(w io.Writer, order []string) {
	fmt.Fprintf(w, "%d Servers, %d sleeping services, one operator replica, %d processors\n", f.Servers, f.Services, f.Processors)
	if f.CreatedToReady != nil {
		fmt.Fprintf(w, "  created -> Ready   %s\n", f.CreatedToReady)
	}
	if s := f.ServerSize; s != nil {
		fmt.Fprintf(w, "  a Server's size    median %d bytes, of them %d managedFields   max %d bytes\n", s.Median, s.ManagedFields, s.Max)
	}
	if s := f.ServiceSize; s != nil {
		fmt.Fprintf(w, "  an ElasticService's median %d bytes, of them %d managedFields   max %d bytes\n", s.Median, s.ManagedFields, s.Max)
	}
	if hold, ok := f.Phases[phaseHold]; ok {
		for _, name := range []string{cluster.OperatorName, cluster.ResolverName} {
			p, ok := hold.Programs[name]
			if !ok {
				continue
			}
			fmt.Fprintf(w, "  %-9s at rest   %.0f MiB, %.3f cores, asks the API server for", name, p.RSS, p.Processor/hold.WithRest)
			asked := hold.Requests[agents[name]]
			for _, kind := range slices.Sorted(maps.Keys(asked)) {
				fmt.Fprintf(w, " %s %d times,", kind, asked[kind].All)
			}
			if len(asked) == 0 {
				fmt.Fprint(w, " nothing")
			}
			fmt.Fprintf(w, " in %.0f s\n", hold.WithRest)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Scrapes)) {
		fmt.Fprintf(w, "  a scrape of the %-9s %d bytes, %.1f ms\n", name, f.Scrapes[name].Bytes, f.Scrapes[name].Median)
	}
	if f.NewResolver > 0 {
		fmt.Fprintf(w, "  new resolver ready -> in all slices  %.1f s; %s\n", f.NewResolver, f.NewResolverWakes)
	}
	for _, l := range f.NewLeaders {
		fmt.Fprintf(w, "  %s\n", l)
	}
	if s := f.Storm; s != nil {
		fmt.Fprintf(w, "  %d wakes     all scaled after %.2f s, all accepted after %.2f s, %d calls made again\n    call -> answer       %s\n    call -> scale write  %s\n", s.Wakes, s.Last, s.Accepted, s.Again, s.Answer, s.ScaleWrite)
	}
	if t := f.Triggered; t != nil {
		fmt.Fprintf(w, "  %d services with triggers, %d awake   at rest %.0f queries a minute of Prometheus, %.0f of Pods\n", t.Services, t.Awake, t.PrometheusQueries, t.HTTPQueries)
		if p, ok := f.Phases["triggers hold"]; ok {
			fmt.Fprintf(w, "    at rest              operator %.0f MiB, %.3f cores, %d writes and %d reads of the API server in %.0f s\n",
				p.Programs[cluster.OperatorName].RSS, p.Programs[cluster.OperatorName].Processor/p.WithRest, p.Writes, p.Reads, p.WithRest)
		}
		fmt.Fprintf(w, "    the operator's open watches:")
		for _, resource := range slices.Sorted(maps.Keys(t.Watches)) {
			fmt.Fprintf(w, " %s %d,", resource, t.Watches[resource])
		}
		fmt.Fprintf(w, "\n    call -> scale write  %s\n    nobody is there -> all asleep  %.1f s, of which %.0f s are sleepAfter\n", t.ScaleWrite, t.Slept, t.SleepAfter)
	}
	fmt.Fprintf(w, "%-32s %8s %8s %8s %8s %8s %9s %9s %9s %9s\n", "phase", "seconds", "settled", "writes", "reads", "409", "op CPU s", "op peak", "rs peak", "API CPU s")
	for _, name := range order {
		p, ok := f.Phases[name]
		if !ok {
			continue
		}
		op := p.Programs[cluster.OperatorName]
		if standby, ok := p.Programs[cluster.StandbyName]; ok {
			op = standby
		}
		fmt.Fprintf(w, "%-32s %8.1f %8.1f %8d %8d %8d %9.2f %5.0f MiB %5.0f MiB %9.1f\n", name, p.Seconds, p.WithRest, p.Writes, p.Reads, p.Conflicts,
			op.Processor, op.Peak, p.Programs[cluster.ResolverName].Peak, p.Programs[cluster.APIServer].Processor)
	}
	fmt.Fprintln(w, "processor time and peak memory by program:")
	for _, name := range order {
		fmt.Fprintf(w, "  %s:", name)
		programs := f.Phases[name].Programs
		for _, program := range slices.Sorted(maps.Keys(programs)) {
			fmt.Fprintf(w, "  %s %.1f s, %.0f MiB", program, programs[program].Processor, programs[program].Peak)
		}
		fmt.Fprintln(w)
	}
	if n := float64(f.Servers); n > 0 {
		for _, name := range []string{phaseUp, phaseDown} {
			p, ok := f.Phases[name]
			if !ok {
				continue
			}
			fmt.Fprintf(w, "a Server %-5s %.2f writes of the operator, %.2f reads, %.3f conflicts, %.2f ms of its CPU\n", name+":",
				float64(p.Writes)/n, float64(p.Reads)/n, float64(p.Conflicts)/n, 1000*p.Programs[cluster.OperatorName].Processor/n)
			kinds := p.Requests[cluster.OperatorName]
			for _, kind := range slices.Sorted(maps.Keys(kinds)) {
				if each := float64(kinds[kind].All) / n; each >= 0.005 {
					fmt.Fprintf(w, "    %6.3f  %s (conflicts %.3f)\n", each, kind, float64(kinds[kind].Conflicts)/n)
				}
			}
		}
	}
}

func (f *figures) write(path string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}
