package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
)

// lines are what was logged, without the time, which each line must have.
func lines(t *testing.T, logged *bytes.Buffer) []map[string]any {
	t.Helper()
	var all []map[string]any
	for decoder := json.NewDecoder(logged); decoder.More(); {
		var line map[string]any
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if _, err := time.Parse(time.RFC3339Nano, line["time"].(string)); err != nil {
			t.Error(err)
		}
		delete(line, "time")
		all = append(all, line)
	}
	return all
}

func TestALineSaysWhoSaysWhatOfWhat(t *testing.T) {
	var logged bytes.Buffer
	log := logr.FromSlogHandler(Logs{Level: -1}.Handler(&logged)).WithName("report")
	log.Info("A report came", "server", "lobby")
	log.Error(errors.New("no way"), "A report failed")
	log.V(1).Info("More of it")
	log.V(2).Info("Too much of it")
	want := []map[string]any{
		{"level": "INFO", "logger": "report", "msg": "A report came", "server": "lobby"},
		{"level": "ERROR", "logger": "report", "msg": "A report failed", "err": "no way"},
		{"level": "DEBUG", "logger": "report", "msg": "More of it"},
	}
	if diff := cmp.Diff(want, lines(t, &logged)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// An audit log has a line of each change, and what else is said keeps none of them out of it.
func TestAnUnsampledLoggersLinesAreAllLogged(t *testing.T) {
	for name, sampled := range map[string]bool{"sampled": true, "not sampled": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged bytes.Buffer
				log := logr.FromSlogHandler(Logs{Sampled: sampled}.Handler(&logged)).WithName("api")
				for range 350 {
					log.Info("the same")
				}
				logged.Reset()
				for range 300 {
					Unsampled(log).Info("the same", "user", "alice")
				}
				got := lines(t, &logged)
				if len(got) != 300 {
					t.Fatalf("%d lines, want 300", len(got))
				}
				if diff := cmp.Diff(map[string]any{"level": "INFO", "logger": "api", "msg": "the same", "user": "alice"}, got[0]); diff != "" {
					t.Errorf("a line (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestWhatIsSaidAgainAndAgainIsLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		log := logr.FromSlogHandler(Logs{Level: slog.LevelInfo, Sampled: true}.Handler(&logged))
		for i := range 350 {
			log.WithValues("i", i).Info("the same")
		}
		log.Info("another")
		if got := len(lines(t, &logged)); got != 100+2+1 {
			t.Errorf("%d lines of 351, want the first 100, each 100th of the others, and another", got)
		}
		time.Sleep(samplePeriod) //nolint:forbidigo // no time passes
		log.Info("the same")
		if got := len(lines(t, &logged)); got != 1 {
			t.Errorf("%d lines a second later, want 1", got)
		}
	})
}
