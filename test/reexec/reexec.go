// Package reexec runs a test's own program again, as another process: some things differ by process,
// such as whose a socket is.
package reexec

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// env has the argument of a process that Run started.
const env = "DORMOUSE_TEST_AGAIN"

// Argument is what this process is to do; empty: it was not started by Run. TestMain asks for it.
func Argument() string { return os.Getenv(env) }

// Run starts the process, and returns the first line that it prints. end ends its input, which it
// must end by, and waits for it; it may be called again.
func Run(t *testing.T, argument string) (line string, end func()) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), env+"="+argument)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	ended := false
	return strings.TrimSpace(line), func() {
		if ended {
			return
		}
		ended = true
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
