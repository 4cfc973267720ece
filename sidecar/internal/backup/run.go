package backup

import (
	"context"
	"errors"
	"flag"
	"os"

	"github.com/go-logr/logr"

	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/sidecar/internal/backup/fault"
	"dormouse.dev/dormouse/sidecar/internal/backup/store"
)

// Main runs one of the programs and returns the code to exit with: 0 if it did what it is for, 1 if it
// failed and may be tried again, 2 for wrong settings and for faults that another try can't mend.
func Main(command string, args []string) int {
	opts, err := Parse(command, args, os.LookupEnv, os.Stderr)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) && opts.Report != "" {
			_ = Report{Error: err.Error()}.write(opts.Report)
		}
		return program.Misused(os.Stderr, err)
	}
	code := 0
	ended := program.Main(program.Program{
		// It takes its time to tidy up.
		Name: "sidecar " + command, Logs: program.Logs{Level: opts.LogLevel}, Drains: true,
		Run: func(ctx context.Context, p program.Process) error {
			err := Run(ctx, p.Log, opts)
			code = exitCode(err)
			return err
		},
	})
	return max(code, ended)
}

// Run does what a program is for, and writes the report.
func Run(ctx context.Context, log logr.Logger, opts Options) error {
	report, err := do(ctx, log, opts)
	if err != nil {
		err = opts.S3.Hide(err)
		report = Report{Between: report.Between, Error: err.Error()}
	}
	if report.Disks == nil {
		report.Disks = []string{}
	}
	if writeErr := report.write(opts.Report); writeErr != nil {
		log.Error(writeErr, "How it ended can't be said", "report", report)
	}
	if err == nil {
		log.Info("It is done", "report", report)
	}
	return err
}

// Exit codes, beside 0.
const (
	codeFailed = 1
	// codeFinal is of a fault that another try can't mend.
	codeFinal = 2
)

// exitCode is what a program exits with.
func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case fault.IsFinal(err):
		return codeFinal
	}
	return codeFailed
}

func do(ctx context.Context, log logr.Logger, opts Options) (Report, error) {
	switch opts.Command {
	case commandBackup:
		return backup(ctx, opts, log)
	case commandRestore:
		return restore(ctx, opts, log, nil)
	case commandSettle:
		return settle(ctx, opts, log, nil)
	case commandDrop:
		return Report{Disks: names(opts.Disks)}, dropPrevious(ctx, opts, nil)
	}
	return Report{}, forget(ctx, opts, log)
}

// forget deletes an archive.
func forget(ctx context.Context, o Options, log logr.Logger) error {
	at, err := store.Open(o.Archive, o.S3, log)
	if err != nil {
		return err
	}
	defer at.Close()
	return at.Remove(ctx)
}
