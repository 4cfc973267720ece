// Command sidecar runs beside a game: it finds out how many play and whether the game may be
// deleted, serves the Agones SDK to it, and reports to the operator. `sidecar files` is another
// program: it serves a game's disk over SFTP. `sidecar backup`, `restore`, `drop-previous` and `forget`
// copy its disks.
package main

import (
	"context"
	"os"

	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/sidecar/internal/backup"
	"dormouse.dev/dormouse/sidecar/internal/files"
	"dormouse.dev/dormouse/sidecar/internal/options"
	"dormouse.dev/dormouse/sidecar/internal/run"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "files" {
		os.Exit(files.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && backup.Is(os.Args[1]) {
		os.Exit(backup.Main(os.Args[1], os.Args[2:]))
	}
	opts, err := options.Parse(os.Args[1:], os.LookupEnv, os.Stderr)
	if err != nil {
		os.Exit(program.Misused(os.Stderr, err))
	}
	os.Exit(program.Main(program.Program{
		Name:   "sidecar",
		Logs:   program.Logs{Level: opts.LogLevel},
		Drains: true,
		Run:    func(ctx context.Context, p program.Process) error { return run.Run(ctx, p, opts) },
	}))
}
