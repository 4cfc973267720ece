// Package buildinfo identifies the build of a program.
package buildinfo

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// Version is the version of the module from which the program was built; empty for a build from
// a checkout without one.
func Version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok || build.Main.Version == "(devel)" {
		return ""
	}
	return build.Main.Version
}

// Register adds a metric that is always 1 and has the program and its build in its labels.
// Alerts use it to find out whether a program runs at all.
func Register(registry prometheus.Registerer, program string) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "dormouse_build_info",
		Help: "Always 1: the program that runs, its version if it was built from one, and Go's.",
		ConstLabels: prometheus.Labels{
			"program": program, "version": Version(), "goversion": runtime.Version(),
		},
	}, func() float64 { return 1 }))
}
