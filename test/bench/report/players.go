package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// playing is the processes that play sidecars.
type playing struct {
	processes []*process
	reading   sync.WaitGroup

	mu      sync.Mutex
	drained map[string]time.Time
	failed  int64
	why     string
}

type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan error
}

// startPlaying spreads sidecars over processes.
func startPlaying(ctx context.Context, address string, sidecars []sidecarOf, processes int) (_ *playing, err error) {
	p := &playing{drained: map[string]time.Time{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	for i := range processes {
		from, to := i*len(sidecars)/processes, (i+1)*len(sidecars)/processes
		if err := p.start(ctx, address, sidecars[from:to]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *playing) start(ctx context.Context, address string, sidecars []sidecarOf) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	one := &process{cmd: exec.CommandContext(ctx, self, "-play="+address), ended: make(chan error, 1)}
	one.cmd.Stderr = os.Stderr
	out, err := one.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	if one.in, err = one.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	if err := one.cmd.Start(); err != nil {
		return fmt.Errorf("start a process that plays sidecars: %w", err)
	}
	p.processes = append(p.processes, one)
	p.reading.Go(func() {
		p.read(out)
		one.ended <- one.cmd.Wait()
	})
	writer := bufio.NewWriter(one.in)
	encoder := json.NewEncoder(writer)
	for _, s := range sidecars {
		if err := encoder.Encode(s); err != nil {
			return fmt.Errorf("tell of a sidecar: %w", err)
		}
	}
	fmt.Fprintln(writer)
	if err := writer.Flush(); err != nil {
		return fmt.Errorf("tell of the sidecars: %w", err)
	}
	return nil
}

func (p *playing) read(out io.Reader) {
	lines := json.NewDecoder(out)
	for {
		var t notice
		if lines.Decode(&t) != nil {
			return
		}
		p.mu.Lock()
		if t.Drained != "" {
			p.drained[t.Drained] = time.Unix(0, t.At)
		}
		p.failed += t.Failed
		if t.Why != "" {
			p.why = t.Why
		}
		p.mu.Unlock()
	}
}

// failures are the calls that failed so far, and why the last one did.
func (p *playing) failures() (int64, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed, p.why
}

// noticed are those of some Servers that were told to drain, with when.
func (p *playing) noticed(names []string) map[string]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := map[string]time.Time{}
	for _, name := range names {
		if at, ok := p.drained[name]; ok {
			list[name] = at
		}
	}
	return list
}

// change makes the players of one sidecar in twenty change.
func (p *playing) change() error {
	for _, one := range p.processes {
		if _, err := io.WriteString(one.in, changeCommand+"\n"); err != nil {
			return fmt.Errorf("tell a process that players change: %w", err)
		}
	}
	return nil
}

// stop ends the processes.
func (p *playing) stop() error {
	var errs []error
	for _, one := range p.processes {
		errs = append(errs, end(one.cmd, one.ended, "a process that plays sidecars"))
	}
	p.reading.Wait()
	return errors.Join(errs...)
}
