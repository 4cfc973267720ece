// Package program has what the operator, the resolver and the sidecar share as programs: the
// logger, the bound of the heap, error tracking, the signals that end a program, its own
// metrics, and its exit code. What a program does, and how it ends its clients, is its own.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"dormouse.dev/dormouse/internal/buildinfo"
	"dormouse.dev/dormouse/internal/errortracking"
)

// Exit codes of the programs.
const (
	exitOK = iota
	// exitFailed is the code of a program that could not start, or could not go on.
	exitFailed
	// exitMisused is the code of a program with invalid settings.
	exitMisused
)

// Program is how a program is run.
type Program struct {
	// Name is the program's name, such as "operator".
	Name string
	// Logs is what is logged.
	Logs Logs
	// Drains is set where the program takes its time to end, as long as it has clients. It
	// ignores a second signal: a kubelet that lost track of a Pod's end sends one. Another
	// program ends at once at the second signal.
	Drains bool
	// Run runs the program until ctx ends, which is at the first signal.
	Run func(ctx context.Context, p Process) error
}

// Process is a program that runs. Its zero value logs and reports nothing.
type Process struct {
	// Name is the program's name.
	Name string
	Log  logr.Logger
	// Errors reports panics and errors.
	Errors *errortracking.Reporter
}

// Misused reports what is wrong with a program's settings to its user, and returns the code to
// exit with. A request for help has been answered already, and is no error.
func Misused(out io.Writer, err error) int {
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	fmt.Fprintln(out, err)
	return exitMisused
}

// Main runs a program and returns the code to exit with.
func Main(p Program) int {
	// The heap is limited before the container's memory is used up. Outside of a container, or
	// without a limit, there is nothing to set.
	_, _ = memlimit.Set()
	handler := p.Logs.Handler(os.Stderr)
	log := logr.FromSlogHandler(handler)
	// Kubernetes' libraries log through this.
	klog.SetSlogLogger(slog.New(handler))
	return p.main(log)
}

func (p Program) main(log logr.Logger) int {
	if err := p.start(log); err != nil {
		log.Error(err, "The "+p.Name+" ends")
		return exitFailed
	}
	return exitOK
}

func (p Program) start(log logr.Logger) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if !p.Drains {
		context.AfterFunc(ctx, stop)
	}
	reporter, err := errortracking.New(errortracking.FromEnvironment(p.Name, os.Getenv))
	if err != nil {
		return err
	}
	defer reporter.Close()
	defer utilruntime.HandleCrash()
	reporter.WatchCrashes()
	return p.Run(ctx, Process{Name: p.Name, Log: log, Errors: reporter})
}

// Register adds every program's own metrics to a registry: its build, and what it reported to
// error tracking.
func (p Process) Register(registry prometheus.Registerer) {
	buildinfo.Register(registry, p.Name)
	p.Errors.Register(registry)
}

// NewRegistry makes a registry with every program's own metrics, and those of the Go runtime
// and the process.
func (p Process) NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.Register(registry)
	return registry
}
