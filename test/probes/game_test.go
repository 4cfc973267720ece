package probes

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// game is a server that runs until the test ends. It tells what happens in
// lines and takes commands in lines.
type game struct {
	t     *testing.T
	stdin io.Writer
	lines chan string
}

// start runs a server.
func start(t *testing.T, cmd *exec.Cmd) *game {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g := &game{t: t, stdin: stdin, lines: make(chan string, 10_000)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		scanner := bufio.NewScanner(reader)
		for scanner.Scan() {
			select {
			case g.lines <- scanner.Text():
			default: // Nobody waits for one of so many.
			}
		}
		_, _ = io.Copy(io.Discard, reader)
		close(g.lines)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = writer.Close()
		<-ended
	})
	return g
}

// say gives the server a command.
func (g *game) say(format string, args ...any) {
	g.t.Helper()
	if _, err := fmt.Fprintf(g.stdin, format+"\n", args...); err != nil {
		g.t.Fatal(err)
	}
}

// wait returns the rest of the next line that begins with a text.
func (g *game) wait(prefix string) string {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), startup)
	defer cancel()
	var seen []string
	for {
		select {
		case line, ok := <-g.lines:
			if !ok {
				g.t.Fatalf("the server ended without saying %q:\n%s", prefix, strings.Join(seen, "\n"))
			}
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				return strings.TrimSpace(rest)
			}
			seen = append(seen, line)
		case <-ctx.Done():
			g.t.Fatalf("the server didn't say %q:\n%s", prefix, strings.Join(seen, "\n"))
		}
	}
}
