package sim

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Print writes the report for people: a table for each seed, the mean, and the goals.
func (r *Report) Print(out io.Writer) {
	fmt.Fprintf(out, "Weeks %d to %d of %d; in those before the forecast learns.\n", r.LearningWeeks+1, r.Weeks, r.Weeks)
	for _, s := range r.Seeds {
		fmt.Fprintf(out, "\nseed %d, peak %d players; flash crowd %s, release %s, webhook's outage %s\n", s.Seed, s.Peak,
			s.FlashCrowd.Format(happens), s.Release.Format(happens), s.OutageFrom.Format(happens))
		printRows(out, s.Policies)
	}
	if len(r.Seeds) > 1 {
		fmt.Fprintf(out, "\nmean of %d seeds\n", len(r.Seeds))
		printRows(out, r.Mean)
	}
	fmt.Fprintln(out)
	for _, row := range r.Mean {
		fmt.Fprintf(out, "%-16s %s\n", row.Policy, row.Means)
	}
	fmt.Fprintf(out, "\nThe forecast is to have %d %% fewer players wait, at %d %% more server-hours at most:\n", fewerWait, moreServers)
	for _, g := range r.Goals {
		of := fmt.Sprintf("seed %d", g.Seed)
		if g.Seed == 0 {
			of = "mean"
		}
		met := "missed"
		if g.Met {
			met = "met"
		}
		fmt.Fprintf(out, "  %-9s against %-14s %5.1f %% fewer wait, %+6.1f %% server-hours: %s\n", of, g.Against, g.FewerWaitPercent, g.MoreServersPercent, met)
	}
}

const happens = "Jan 2 15:04"

func printRows(out io.Writer, rows []Row) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "policy\tserver-hours\tof always-on\twaited\tof players\tp50\tp99\tgave up\tscale operations\t")
	for _, row := range rows {
		f := &row.Counted
		fmt.Fprintf(w, "%s\t%.0f\t%.0f %%\t%.0f\t%.2f %%\t%s\t%s\t%.0f\t%.0f\t\n", row.Policy, f.ServerHours, f.PercentOfAlwaysOn,
			f.Waited, f.WaitedPercent, wait(f.WaitP50), wait(f.WaitP99), f.GaveUp, f.ScaleOperations)
	}
	_ = w.Flush()
}

// wait is a number of seconds for people.
func wait(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
