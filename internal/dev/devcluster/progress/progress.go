// Package progress tells a person how far a longer work is, and by the end of a log why it
// failed.
package progress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Step is one part of a longer work, in words that follow "doing:".
type Step struct {
	Title string
	Run   func(context.Context) error
}

// Run does one step after another and says how far it is.
func Run(ctx context.Context, w io.Writer, steps []Step) error {
	for i, s := range steps {
		began := time.Now()
		fmt.Fprintf(w, "[%d/%d] %s … ", i+1, len(steps), s.Title)
		if err := s.Run(ctx); err != nil {
			fmt.Fprintln(w, "failed")
			return err
		}
		fmt.Fprintln(w, time.Since(began).Round(100*time.Millisecond))
	}
	return nil
}

// logError is about one component, whose log then says more.
type logError struct {
	log string
	err error
}

func (e *logError) Error() string {
	tail := "(the log is empty)"
	if content, err := os.ReadFile(e.log); err == nil && len(content) > 0 {
		tail = string(LastLines(content, 15))
	}
	return fmt.Sprintf("%v\nlast lines of %s:\n%s", e.err, e.log, tail)
}

func (e *logError) Unwrap() error { return e.err }

// WithLog attaches the end of a component's log to an error, unless it has one or says only that
// somebody ended the work.
func WithLog(log string, err error) error {
	var already *logError
	if err == nil || errors.As(err, &already) || errors.Is(err, context.Canceled) {
		return err
	}
	return &logError{log: log, err: err}
}

// LastLines are the end of a log, cut to a width that a person can read.
func LastLines(content []byte, n int) []byte {
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
