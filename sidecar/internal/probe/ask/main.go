// Command ask prints how many play a game, as a sidecar would see it:
//
//	go run ./sidecar/internal/probe/ask minecraft 127.0.0.1:25565
//
// It prints the status as JSON, and ends with 1 when there is none.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"dormouse.dev/dormouse/sidecar/internal/probe"
)

// timeout is how long a game may take to answer.
const timeout = 3 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ask:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: ask minecraft|bedrock|source|quake3 HOST:PORT")
	}
	prober, err := probe.New(probe.Kind(args[0]), args[1])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	status, err := prober.Query(ctx)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(status); err != nil {
		return fmt.Errorf("print the status: %w", err)
	}
	return nil
}
