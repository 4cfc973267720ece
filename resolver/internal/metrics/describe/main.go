// Command describe lists the resolver's metrics, for docs/metrics.md.
package main

import (
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"dormouse.dev/dormouse/internal/buildinfo"
	"dormouse.dev/dormouse/internal/dev/metricsdoc"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/objectmetrics"
	"dormouse.dev/dormouse/resolver/internal/metrics"
)

func main() {
	if err := metricsdoc.Write(os.Stdout, "Resolver", gather()); err != nil {
		fmt.Fprintln(os.Stderr, "describe:", err)
		os.Exit(1)
	}
}

// gather gathers all of the resolver's metrics, with a series of each.
func gather() prometheus.Gatherer {
	var all *metrics.Metrics
	gatherer := objectmetrics.NewGatherer(metricsdoc.Sample(func(registry prometheus.Registerer) {
		buildinfo.Register(registry, "resolver")
		(*errortracking.Reporter)(nil).Register(registry)
		httpserver.New(httpserver.Options{Registerer: registry})
		all = metrics.New(registry)
		all.HeldBytes(func() int64 { return 0 }, 0)
	}))
	gatherer.Add(all)
	p := all.Port("", "", "")
	p.HeldBegun()
	p.SessionBegun()
	p.ClientTaken()
	p.Refused("")
	p.DatagramDropped()
	p.SessionCutShort()
	p.Took(metrics.StageTotal, 0)
	all.WakeCalled("", "", "")
	return gatherer
}
