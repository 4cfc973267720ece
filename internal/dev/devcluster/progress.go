package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// step is one part of a longer work, in words that follow "doing:".
type step struct {
	title string
	run   func(context.Context) error
}

// runSteps does one step after another and says how far it is.
func runSteps(ctx context.Context, w io.Writer, steps []step) error {
	for i, s := range steps {
		began := time.Now()
		fmt.Fprintf(w, "[%d/%d] %s … ", i+1, len(steps), s.title)
		if err := s.run(ctx); err != nil {
			fmt.Fprintln(w, "failed")
			return err
		}
		fmt.Fprintln(w, time.Since(began).Round(100*time.Millisecond))
	}
	return nil
}

// componentError is about one component, whose log then says more.
type componentError struct {
	component string
	log       string
	err       error
}

func (e *componentError) Error() string {
	tail := "(the log is empty)"
	if content, err := os.ReadFile(e.log); err == nil && len(content) > 0 {
		tail = string(lastLines(content, 15))
	}
	return fmt.Sprintf("%v\nlast lines of %s:\n%s", e.err, e.log, tail)
}

func (e *componentError) Unwrap() error { return e.err }

// blame attaches a component's log to an error, unless it has one.
func (c *Cluster) blame(component string, err error) error {
	var already *componentError
	if err == nil || errors.As(err, &already) || errors.Is(err, context.Canceled) {
		return err
	}
	return &componentError{component: component, log: c.logPath(component), err: err}
}

// lastLines are the end of a log, cut to a width that a person can read.
func lastLines(content []byte, n int) []byte {
	const width = 240
	lines := bytes.Split(bytes.TrimRight(content, "\n"), []byte("\n"))
	lines = lines[max(0, len(lines)-n):]
	for i, line := range lines {
		if len(line) > width {
			lines[i] = append(line[:width:width], " …"...)
		}
	}
	return bytes.Join(lines, []byte("\n"))
}
