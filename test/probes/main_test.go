// Package probes tests what a sidecar asks games against games that were
// written by others: servers of Debian's and npm's packages, with players in
// them, and other people's query programs for a second opinion. All of them
// listen on the loopback interface only.
package probes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/env/node"
)

const (
	// startup is how long a server may take until it answers, and a player
	// until the server counts them.
	startup = 20 * time.Second
	// askPeriod is how often is asked until then.
	askPeriod = 100 * time.Millisecond
)

// status is what the ask command prints: the sidecar's packages are its own.
type status struct {
	Players, Capacity int
	Version, Name     string
}

var (
	// askProgram is the ask command, built by TestMain.
	askProgram string
	// modules are npm's packages. nodeErr says why there are none.
	modules string
	nodeErr error
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/probes:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "dormouse-probes-")
	if err != nil {
		return 0, fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	askProgram = filepath.Join(dir, "ask")
	ctx := context.Background()
	build := exec.CommandContext(ctx, "go", "build", "-o", askProgram, "dormouse.dev/dormouse/sidecar/internal/probe/ask")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the ask command: %w\n%s", err, out)
	}
	modules, nodeErr = node.Install(ctx, "node", os.Stderr)
	return m.Run(), nil
}

// needNode skips a test that can't have Node.js.
func needNode(t *testing.T) {
	t.Helper()
	if errors.Is(nodeErr, env.ErrNotInstalled) {
		t.Skip(nodeErr)
	}
	if nodeErr != nil {
		t.Fatal(nodeErr)
	}
}

// needDebian installs a package of Debian's, or skips the test that can't have
// it.
func needDebian(t *testing.T, name, program string) {
	t.Helper()
	mayInstall(t, env.InstallDebian(t.Context(), name, program, os.Stderr))
}

// mayInstall skips a test whose programs can't be had.
func mayInstall(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, env.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ask asks as a sidecar does.
func ask(t *testing.T, kind string, port int) (status, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), askProgram, kind, fmt.Sprintf("127.0.0.1:%d", port)).Output()
	if err != nil {
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			return status{}, errors.New(string(bytes.TrimSpace(failed.Stderr)))
		}
		t.Fatal(err)
	}
	var s status
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("read %q: %v", out, err)
	}
	return s, nil
}

// eventually asks until the answer is as wanted. The version is not compared.
func eventually(t *testing.T, kind string, port int, want status) {
	t.Helper()
	poll(t, kind, askPeriod, want, func() (status, error) {
		got, err := ask(t, kind, port)
		got.Version = ""
		return got, err
	})
}

// poll asks every so often until the answer is as wanted.
func poll[T comparable](t *testing.T, whom string, every time.Duration, want T, ask func() (T, error)) {
	t.Helper()
	deadline := time.Now().Add(startup)
	for {
		got, err := ask()
		if err == nil && got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: got %+v (error %v), want %+v", whom, got, err, want)
		}
		<-time.After(every)
	}
}

// opinion is what another program says about a game.
type opinion struct {
	Name                    string
	Players, Bots, Capacity int
}

// gamedig asks with the npm package of that name.
func gamedig(t *testing.T, kind string, port int) opinion {
	t.Helper()
	cmd := node.Command(t.Context(), modules, filepath.Join("node", "gamedig.js"), kind, fmt.Sprint(port))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ask with gamedig: %v", err)
	}
	var o opinion
	if err := json.Unmarshal(out, &o); err != nil {
		t.Fatalf("read %q: %v", out, err)
	}
	return o
}

// freePort is a UDP port that nobody had a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).Port
}
