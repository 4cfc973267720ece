// Package convert is the operator's command that writes other programs' objects as those of
// Dormouse. It reads and writes YAML alone, and needs no cluster.
package convert

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// Exit codes of the command.
const (
	exitOK = iota
	// exitFailed is the code where something can't be read, written or converted. What can be is
	// written all the same.
	exitFailed
	// exitMisused is the code of a command line that is none.
	exitMisused
)

const usage = `Usage: operator convert elasti [FILE]

Reads the ElastiServices of KubeElasti in FILE, or on the standard input where it is - or
missing, and writes an ElasticService for each on the standard output. What has no counterpart,
or means something else, stands as a comment above it and on the standard error. Ports get
their names from the Services in the same input, where it has them.
`

// Main runs the command with the arguments after its name, and returns the code to exit with.
func Main(args []string, in io.Reader, out, errs io.Writer) int {
	f := flag.NewFlagSet("convert", flag.ContinueOnError)
	f.SetOutput(errs)
	f.Usage = func() { fmt.Fprint(errs, usage) }
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return exitOK
	} else if err != nil {
		return exitMisused
	}
	if f.Arg(0) != "elasti" || f.NArg() > 2 {
		f.Usage()
		return exitMisused
	}
	text, err := read(f.Arg(1), in)
	if err != nil {
		fmt.Fprintln(errs, err)
		return exitFailed
	}
	r := result{out: out, errs: errs}
	r.convert(text)
	if r.failed {
		return exitFailed
	}
	return exitOK
}

// read reads a file, or the standard input.
func read(file string, in io.Reader) ([]byte, error) {
	if file == "" || file == "-" {
		text, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("read the standard input: %w", err)
		}
		return text, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the ElastiServices: %w", err)
	}
	return text, nil
}
