// Package bucket runs a real service of buckets for tests: Versity's S3 gateway, which keeps objects as
// files. It is built from the Go module proxy, in a module of its own.
package bucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"dormouse.dev/dormouse/internal/dev/images"
)

// Program is the service. In a Pod it needs Args and Environment.
var Program = images.Program{
	Name: "versitygw", Package: "github.com/versity/versitygw/cmd/versitygw", Module: "test/env/bucket/versitygw", Image: "dormouse-testbucket",
}

// Asset is the environment's variable that tells tests where Build put the program.
const Asset = "TEST_ASSET_BUCKET"

// Region is the buckets'.
const Region = "us-east-1"

const healthPath = "/healthy"

// Build compiles the program into bin/programs, and returns its path. repo is the project's root. The
// first build takes two minutes.
func Build(ctx context.Context, repo string, progress io.Writer) (string, error) {
	binary := filepath.Join(repo, "bin", "programs", Program.Name)
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", fmt.Errorf("build the service of buckets: %w", err)
	}
	if _, err := os.Stat(binary); err != nil {
		fmt.Fprintln(progress, "building the service of buckets (the first build takes two minutes)")
	}
	return binary, Program.Compile(ctx, repo, binary)
}

// Credentials are those of the one user that the service has.
type Credentials struct{ AccessKeyID, SecretAccessKey string }

// NewCredentials makes some.
func NewCredentials() Credentials { return Credentials{"test" + rand.Text(), rand.Text()} }

// Environment is what the program needs in its environment.
func (c Credentials) Environment() []string {
	return []string{"ROOT_ACCESS_KEY_ID=" + c.AccessKeyID, "ROOT_SECRET_ACCESS_KEY=" + c.SecretAccessKey}
}

// Args are the program's arguments: where it listens, host:port, and the directory, which has a
// directory for each bucket. Its file system must have extended attributes.
func Args(address, dir string) []string {
	return []string{"--port=" + address, "--region=" + Region, "--health=" + healthPath, "--quiet", "posix", dir}
}

// Service is a service that runs on the loopback address.
type Service struct {
	Credentials
	// Endpoint is its URL.
	Endpoint string

	binary, dir, address string
	running              *exec.Cmd
	ended                chan struct{}
}

// New makes a service whose buckets are in a directory. It doesn't run yet.
func New(binary, dir string) (*Service, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at once
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return &Service{Credentials: NewCredentials(), Endpoint: "http://" + address, binary: binary, dir: dir, address: address}, nil
}

// MakeBucket makes a bucket.
func (s *Service) MakeBucket(name string) error {
	if err := os.Mkdir(filepath.Join(s.dir, name), 0o755); err != nil {
		return fmt.Errorf("make bucket %s: %w", name, err)
	}
	return nil
}

// Start starts the program, and returns once it answers. It may be started again after Kill.
func (s *Service) Start(ctx context.Context) error {
	// It ends by Kill, not with the context.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.binary, Args(s.address, s.dir)...)
	cmd.Env = append(os.Environ(), s.Environment()...)
	cmd.Dir = s.dir
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the service of buckets: %w", err)
	}
	s.running, s.ended = cmd, make(chan struct{})
	go func() {
		defer close(s.ended)
		_ = cmd.Wait()
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := s.answers(ctx); err != nil {
		s.Kill()
		return fmt.Errorf("start the service of buckets: %w", err)
	}
	return nil
}

func (s *Service) answers(ctx context.Context) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+healthPath, http.NoBody)
		if err != nil {
			return err //nolint:wrapcheck // Start does
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-look.C:
		case <-s.ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return fmt.Errorf("it doesn't answer: %w", ctx.Err())
		}
	}
}

// Kill ends the program at once, as a crash does.
func (s *Service) Kill() {
	if s.running == nil {
		return
	}
	_ = s.running.Process.Kill()
	<-s.ended
	s.running = nil
}
