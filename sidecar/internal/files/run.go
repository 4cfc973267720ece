package files

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/sync/errgroup"

	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/program"
)

// Main runs `sidecar files` and returns the code to exit with.
func Main(args []string) int {
	opts, err := Parse(args, os.LookupEnv, os.Stderr)
	if err != nil {
		return program.Misused(os.Stderr, err)
	}
	return program.Main(program.Program{
		Name: "sidecar files", Logs: program.Logs{Level: opts.LogLevel}, Drains: true,
		Run: func(ctx context.Context, p program.Process) error { return Run(ctx, p, opts) },
	})
}

// Run serves the directory, and the metrics, until ctx ends and the sessions have.
func Run(ctx context.Context, p program.Process, opts Options) error {
	registry := p.NewRegistry()
	server, err := New(opts, registry, p.Log)
	if err != nil {
		return err
	}
	defer server.Close()
	// The metrics are there until the last session has ended.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	public := httpserver.New(httpserver.Options{
		Address: opts.MetricsListen, Gatherer: registry, Registerer: registry, Log: p.Log, OnPanic: p.Errors.Panic,
	})
	if err := public.Listen(running); err != nil {
		return err //nolint:wrapcheck // it names the address
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", opts.Listen)
	if err != nil {
		return fmt.Errorf("listening for SFTP: %w", err)
	}
	p.Log.Info("SFTP is served", "address", ln.Addr().String(), "root", opts.Root)
	group, groupCtx := errgroup.WithContext(running)
	group.Go(func() error { return public.Start(groupCtx) })
	group.Go(func() error {
		defer stop()
		serving, end := context.WithCancel(groupCtx)
		defer end()
		defer context.AfterFunc(ctx, end)()
		server.Serve(serving, ln)
		return nil
	})
	return group.Wait() //nolint:wrapcheck // each says what it is about
}
