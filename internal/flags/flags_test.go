package flags

import (
	"errors"
	"flag"
	"io"
	"log/slog"
	"strings"
	"testing"
)

func parse(args []string, env map[string]string) (n int, level slog.Level, err error) {
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.IntVar(&n, "some-number", 1, "")
	read := LogLevel(fs)
	err = Parse(fs, args, func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	})
	if err == nil {
		level, err = read()
	}
	return n, level, err
}

func TestAFlagComesBeforeTheEnvironment(t *testing.T) {
	env := map[string]string{"DORMOUSE_SOME_NUMBER": "2", "DORMOUSE_LOG_LEVEL": "warn"}
	if n, level, err := parse(nil, env); n != 2 || level != slog.LevelWarn || err != nil {
		t.Errorf("from the environment: %d, %s, %v; want 2, WARN", n, level, err)
	}
	if n, level, err := parse([]string{"--some-number=3", "--log-level=debug"}, env); n != 3 || level != slog.LevelDebug || err != nil {
		t.Errorf("from flags: %d, %s, %v; want 3, DEBUG", n, level, err)
	}
	if n, level, err := parse(nil, nil); n != 1 || level != slog.LevelInfo || err != nil {
		t.Errorf("from nothing: %d, %s, %v; want 1, INFO", n, level, err)
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		says string
	}{
		"what is no flag":           {args: []string{"five"}, says: `"five" is not a flag`},
		"a wrong flag":              {args: []string{"--some-number=x"}, says: "some-number"},
		"a wrong environment":       {env: map[string]string{"DORMOUSE_SOME_NUMBER": "x"}, says: "DORMOUSE_SOME_NUMBER"},
		"a level that there is not": {args: []string{"--log-level=loud"}, says: "--log-level must be debug"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := parse(c.args, c.env); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q in it", err, c.says)
			}
		})
	}
	if _, _, err := parse([]string{"--help"}, nil); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("help: %v", err)
	}
}
