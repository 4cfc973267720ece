// Command gameserver is the game server of Dormouse's tests, demo and
// benchmarks. It answers numbered messages over TCP and UDP and says in each
// reply when it started, when it listened, when the session's first byte came
// and from where. It can boot slowly and crash on request.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"dormouse.dev/dormouse/test/gameserver/internal/server"
)

func main() {
	// A process with the number 1 ignores signals that it does not ask for.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gameserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == "play" {
		return play(ctx, args[1])
	}
	options, err := parseOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "gameserver: begins") // a log has something to show
	return server.Run(ctx, options)
}
