package program

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestWhoAsksForHelpDoesNothingWrong(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code int
		says string
	}{
		"help":          {fmt.Errorf("reading the flags: %w", flag.ErrHelp), 0, ""},
		"a wrong value": {errors.New("--a must be b"), 2, "--a must be b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			if code := Misused(&said, c.err); code != c.code || said.String() != c.says {
				t.Errorf("code %d and %q, want %d and %q", code, said.String(), c.code, c.says)
			}
		})
	}
}

func TestASignalEndsAProgramAndItsErrorFailsIt(t *testing.T) {
	t.Setenv("SENTRY_DSN", "")
	// A signal that comes when the program has ended doesn't end the test.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	defer signal.Stop(signals)
	for name, c := range map[string]struct {
		ends error
		code int
	}{"it ends well": {nil, 0}, "it fails": {errors.New("no way"), 1}} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			p := Program{Name: "tester", Drains: true, Run: func(ctx context.Context, p Process) error {
				if ctx.Err() != nil || p.Name != "tester" || p.Errors == nil {
					t.Errorf("it begins with %v, %+v", ctx.Err(), p)
				}
				// The second is nothing new to a program that drains.
				for range 2 {
					if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
						t.Fatal(err)
					}
					<-ctx.Done()
					<-signals
				}
				return c.ends
			}}
			if code := p.main(logr.FromSlogHandler(Logs{}.Handler(&logged))); code != c.code {
				t.Errorf("code %d, want %d", code, c.code)
			}
			if says := strings.Contains(logged.String(), `"msg":"The tester ends","err":"no way"`); says != (c.ends != nil) {
				t.Errorf("logged %s", logged.String())
			}
		})
	}
}

func TestAWrongDSNFailsTheProgram(t *testing.T) {
	t.Setenv("SENTRY_DSN", "nonsense")
	p := Program{Name: "tester", Run: func(context.Context, Process) error {
		t.Error("it runs")
		return nil
	}}
	if code := p.main(logr.Discard()); code != 1 {
		t.Errorf("code %d, want 1", code)
	}
}

func TestAProcessTellsOfItself(t *testing.T) {
	registry := Process{Name: "tester"}.NewRegistry()
	for _, name := range []string{"dormouse_build_info", "dormouse_error_reports_total", "go_goroutines"} {
		if n, err := testutil.GatherAndCount(registry, name); err != nil || n == 0 {
			t.Errorf("%d of %s, %v", n, name, err)
		}
	}
}
