// Command describe lists the metrics of the sidecar and of `sidecar files`, for docs/metrics.md.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"dormouse.dev/dormouse/internal/buildinfo"
	"dormouse.dev/dormouse/internal/dev/metricsdoc"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/sidecar/internal/files"
	"dormouse.dev/dormouse/sidecar/internal/game"
	"dormouse.dev/dormouse/sidecar/internal/metrics"
)

func main() {
	if err := write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "describe:", err)
		os.Exit(1)
	}
}

func write(w io.Writer) error {
	return errors.Join(
		metricsdoc.Write(w, "Sidecar", metricsdoc.Sample(register)),
		metricsdoc.Write(w, "Files, beside those that all programs have", metricsdoc.Sample(files.RegisterMetrics)),
	)
}

// register registers all of the sidecar's metrics.
func register(registry prometheus.Registerer) {
	buildinfo.Register(registry, "sidecar")
	(*errortracking.Reporter)(nil).Register(registry)
	httpserver.New(httpserver.Options{Registerer: registry})
	metrics.New(registry, func() game.Snapshot { return game.Snapshot{} })
}
