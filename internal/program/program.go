// Package program is what the operator, the resolver and the sidecar have in common as programs:
// the logger, the bound of the heap, error tracking, the signals that end a program, what it
// tells of itself, and its exit code. What a program does, and how it lets go of its clients, is
// its own.
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
	// exitFailed is of a program that could not start, or could not go on.
	exitFailed
	// exitMisused is of one whose settings are wrong.
	exitMisused
)

// Program says how a program is run.
type Program struct {
	// Name is the program's name, such as "operator".
	Name string
	// Logs says what is logged.
	Logs Logs
	// Drains says that the program takes its time to end, as long as it has clients. A second
	// signal is nothing new to it then: who lost track of a Pod's end sends one. Another
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

// Misused tells whoever started a program what is wrong with its settings, and returns the code to
// exit with. Who asked for help has had it, and did nothing wrong.
func Misused(out io.Writer, err error) int {
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	fmt.Fprintln(out, err)
	return exitMisused
}

// Main runs a program and returns the code to exit with.
func Main(p Program) int {
	// The heap gives way before the container's memory is used up. Outside of a
	// container, or without a limit, there is nothing to set.
	_, _ = memlimit.Set()
	handler := p.Logs.handler(os.Stderr)
	log := logr.FromSlogHandler(handler)
	// Kubernetes' libraries log by this.
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

// Register adds to a registry what each program tells of itself: which build it is, and what it
// reported.
func (p Process) Register(registry prometheus.Registerer) {
	buildinfo.Register(registry, p.Name)
	p.Errors.Register(registry)
}

// NewRegistry makes a registry with what each program tells of itself, and the Go runtime and the
// kernel of its process.
func (p Process) NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.Register(registry)
	return registry
}
