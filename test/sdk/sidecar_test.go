// Package sdk runs a client of the Agones SDK that others wrote, unchanged, against
// the sidecar's program, and sees what that reports of it. All of it is on loopback.
package sdk

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"dormouse.dev/dormouse/internal/dev/images"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/env/node"
	"dormouse.dev/dormouse/test/reports"
)

// within bounds what a test waits for.
const within = 20 * time.Second

var (
	// program is the sidecar, built by TestMain.
	program string
	// modules are npm's packages. nodeErr says why there are none.
	modules string
	nodeErr error
)

func TestMain(m *testing.M) {
	code, err := prepare(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/sdk:", err)
		code = 1
	}
	os.Exit(code)
}

func prepare(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "dormouse-sdk-")
	if err != nil {
		return 0, fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	repo, err := env.RepoRoot()
	if err != nil {
		return 0, err
	}
	program = filepath.Join(dir, "sidecar")
	all := images.Programs()
	i := slices.IndexFunc(all, func(p images.Program) bool { return p.Name == "sidecar" })
	if err := all[i].Compile(ctx, repo, program); err != nil {
		return 0, err
	}
	if modules, nodeErr = node.Install(ctx, "node", os.Stderr); nodeErr != nil && !errors.Is(nodeErr, env.ErrNotInstalled) {
		return 0, nodeErr
	}
	return m.Run(), nil
}

// ports are where a sidecar listens.
type ports struct {
	Msg                string `json:"msg"`
	GRPCPort, HTTPPort int
}

// startSidecar runs the sidecar's program until the test ends.
func startSidecar(t *testing.T, operator *reports.Operator, args ...string) ports {
	t.Helper()
	args = append([]string{
		"--operator=" + operator.URL(), "--token-file=" + operator.TokenFile(),
		"--grpc-port=0", "--http-port=0", "--listen=127.0.0.1:0",
	}, args...)
	// It is told to end by the test's cleanup, when the test's context is over.
	command := exec.CommandContext(context.Background(), program, args...)
	command.Env = append(os.Environ(), "SERVER_NAME=lobby", "SERVER_NAMESPACE=games")
	log, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	found, ended := make(chan ports, 1), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(log)
		for lines.Scan() {
			var p ports
			if err := json.Unmarshal(lines.Bytes(), &p); err == nil && p.GRPCPort != 0 {
				found <- p
			}
		}
	}()
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(within):
			t.Error("the sidecar doesn't end")
			_ = command.Process.Kill()
			<-ended
		}
		if err := command.Wait(); err != nil {
			t.Errorf("the sidecar ended with %v", err)
		}
	})
	select {
	case p := <-found:
		return p
	case <-time.After(within):
		t.Fatal("the sidecar doesn't start")
		return ports{}
	}
}

// client is the client for Node.js, and what it says.
type client struct {
	t       *testing.T
	in      io.WriteCloser
	answers chan answer
	watched chan gameServer
}

// answer is what came of a call.
type answer struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Details string `json:"details"`
	} `json:"error"`
	Watched *gameServer `json:"watched"`
}

// gameServer is a GameServer as that client shows it.
type gameServer struct {
	ObjectMeta struct {
		Name, Namespace, UID string
		Generation           int64
		CreationTimestamp    int64
		LabelsMap            [][2]string
		AnnotationsMap       [][2]string
		DeletionTimestamp    int64
	}
	Spec struct {
		Health struct {
			Disabled                                             bool
			PeriodSeconds, FailureThreshold, InitialDelaySeconds int
		}
	}
	Status struct {
		State, Address string
		PortsList      []struct {
			Name string
			Port int
		}
		Players struct {
			Count, Capacity int
			IDsList         []string
		}
		CountersMap [][2]json.RawMessage
	}
}

// startClient runs the client until the test ends.
func startClient(t *testing.T, grpcPort int) *client {
	t.Helper()
	if nodeErr != nil {
		t.Skip("the SDK's client can't be run: ", nodeErr)
	}
	command := node.Command(context.Background(), modules, filepath.Join("node", "client.js"))
	command.Env = append(command.Env, fmt.Sprintf("AGONES_SDK_GRPC_PORT=%d", grpcPort))
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, in: in, answers: make(chan answer, 10), watched: make(chan gameServer, 1000)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var a answer
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				t.Errorf("the client says %q: %v", lines.Text(), err)
			}
			if a.Watched != nil {
				c.watched <- *a.Watched
			} else {
				c.answers <- a
			}
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		select {
		case <-ended:
		case <-time.After(within):
			t.Error("the client doesn't end")
			_ = command.Process.Kill()
			<-ended
		}
		if err := command.Wait(); err != nil {
			t.Errorf("the client ended with %v", err)
		}
	})
	return c
}

// try makes a call and gives what came of it.
func (c *client) try(name string, args ...any) answer {
	c.t.Helper()
	c.begin(name, args...)
	return c.ended(name)
}

// begin makes a call; ended returns its result.
func (c *client) begin(name string, args ...any) {
	c.t.Helper()
	line, err := json.Marshal(map[string]any{"call": name, "args": args})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) ended(name string) answer {
	c.t.Helper()
	select {
	case a := <-c.answers:
		return a
	case <-time.After(within):
		c.t.Fatalf("%s has no end", name)
		return answer{}
	}
}

// call makes a call that must go well.
func (c *client) call(name string, args ...any) json.RawMessage {
	c.t.Helper()
	a := c.try(name, args...)
	if a.Error != nil {
		c.t.Fatalf("%s%v: %+v", name, args, *a.Error)
	}
	return a.Result
}

// gives makes a call that must answer just that.
func (c *client) gives(want, name string, args ...any) {
	c.t.Helper()
	if got := string(c.call(name, args...)); got != want {
		c.t.Errorf("%s%v gives %s, want %s", name, args, got, want)
	}
}

// fails makes a call that must fail with a code of gRPC's.
func (c *client) fails(code int, name string, args ...any) {
	c.t.Helper()
	switch a := c.try(name, args...); {
	case a.Error == nil:
		c.t.Errorf("%s%v gives %s, want an error", name, args, a.Result)
	case a.Error.Code != code || a.Error.Details == "":
		c.t.Errorf("%s%v fails with %+v, want code %d", name, args, *a.Error, code)
	}
}

// watches waits until the watch has shown a game server as the test wants it.
func (c *client) watches(what string, want func(gameServer) bool) {
	c.t.Helper()
	for deadline := time.After(within); ; {
		select {
		case got := <-c.watched:
			if want(got) {
				return
			}
		case <-deadline:
			c.t.Fatalf("the watch never shows %s", what)
		}
	}
}
