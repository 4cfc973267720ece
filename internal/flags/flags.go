// Package flags reads a program's settings from flags and, for those that aren't given, from the
// environment.
package flags

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
)

// EnvPrefix precedes a flag's name in the environment: --token-file is
// DORMOUSE_TOKEN_FILE there.
const EnvPrefix = "DORMOUSE_"

// Parse reads the arguments after the program's name, all of which must be flags, and sets the
// other flags from the environment. If help was asked for it is written to the set's output,
// and Parse returns flag.ErrHelp.
func Parse(fs *flag.FlagSet, args []string, env func(string) (string, bool)) error {
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("reading the flags: %w", err)
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("reading the flags: %q is not a flag", fs.Arg(0))
	}
	return fromEnv(fs, env)
}

// fromEnv sets the flags that were not given.
func fromEnv(fs *flag.FlagSet, env func(string) (string, bool)) error {
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var errs []error
	fs.VisitAll(func(f *flag.Flag) {
		name := EnvPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := env(name)
		if !ok || given[f.Name] {
			return
		}
		if err := fs.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("reading %s from the environment: %w", name, err))
		}
	})
	return errors.Join(errs...)
}

// LogLevel adds the flag --log-level. It returns a function for the level, to be called once
// the flags are parsed.
func LogLevel(fs *flag.FlagSet) func() (slog.Level, error) {
	text := fs.String("log-level", "info", "debug, info, warn or error")
	return func() (level slog.Level, err error) {
		if err := level.UnmarshalText([]byte(*text)); err != nil {
			return 0, fmt.Errorf("--log-level must be debug, info, warn or error, not %q", *text)
		}
		return level, nil
	}
}
