// Command describe lists the sidecar's metrics, for docs/metrics.md.
package main

import (
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"dormouse.dev/dormouse/internal/buildinfo"
	"dormouse.dev/dormouse/internal/dev/metricsdoc"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/sidecar/internal/game"
	"dormouse.dev/dormouse/sidecar/internal/metrics"
)

func main() {
	if err := metricsdoc.Write(os.Stdout, "Sidecar", metricsdoc.Sample(register)); err != nil {
		fmt.Fprintln(os.Stderr, "describe:", err)
		os.Exit(1)
	}
}

// register registers all of the sidecar's metrics.
func register(registry prometheus.Registerer) {
	buildinfo.Register(registry, "sidecar")
	(*errortracking.Reporter)(nil).Register(registry)
	httpserver.New(httpserver.Options{Registerer: registry})
	metrics.New(registry, func() game.Snapshot { return game.Snapshot{} })
}
