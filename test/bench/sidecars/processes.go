package sidecars

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"dormouse.dev/dormouse/test/bench/process"
)

// PlayFlag is the flag of a benchmark's program that makes it play sidecars: it then has the
// operator's address, and calls [Play].
const PlayFlag = "play"

// Processes play sidecars.
type Processes struct {
	all     []*one
	reading sync.WaitGroup
	unready func(server string)

	mu      sync.Mutex
	next    int
	of      map[string]*one
	drained map[string]time.Time
	failed  int64
	why     string
}

type one struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lock  sync.Mutex // a line is written whole
	ended chan error
}

// Start starts processes of this very program. Unready is called where the probe of a Server's
// sidecar begins to fail, and may be nil.
func Start(ctx context.Context, address string, count int, unready func(server string)) (_ *Processes, err error) {
	p := &Processes{unready: unready, drained: map[string]time.Time{}, of: map[string]*one{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop())
		}
	}()
	for range count {
		if err := p.start(ctx, address); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Processes) start(ctx context.Context, address string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// Stop ends it, and if this program is gone, the end of its input.
	o := &one{cmd: exec.CommandContext(context.WithoutCancel(ctx), self, "-"+PlayFlag+"="+address), ended: make(chan error, 1)}
	o.cmd.Stderr = os.Stderr
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	if o.in, err = o.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	if err := o.cmd.Start(); err != nil {
		return fmt.Errorf("start a process that plays sidecars: %w", err)
	}
	p.all = append(p.all, o)
	p.reading.Go(func() {
		p.read(out)
		o.ended <- o.cmd.Wait()
	})
	return nil
}

// PIDs are the processes'.
func (p *Processes) PIDs() []int {
	var list []int
	for _, o := range p.all {
		list = append(list, o.cmd.Process.Pid)
	}
	return list
}

// Play starts a sidecar in the process whose turn it is.
func (p *Processes) Play(s Sidecar) error {
	p.mu.Lock()
	o := p.all[p.next%len(p.all)]
	p.next++
	p.of[s.Server] = o
	p.mu.Unlock()
	return o.tell(command{Play: &s})
}

// End ends the sidecar of a Server whose Pod is gone.
func (p *Processes) End(server string) error {
	p.mu.Lock()
	o := p.of[server]
	delete(p.of, server)
	p.mu.Unlock()
	if o == nil {
		return nil
	}
	return o.tell(command{End: server})
}

// Change makes the players of one sidecar in twenty change.
func (p *Processes) Change() error {
	for _, o := range p.all {
		if err := o.tell(command{Change: true}); err != nil {
			return err
		}
	}
	return nil
}

func (o *one) tell(c command) error {
	line, err := encode(c)
	if err != nil {
		return fmt.Errorf("encode a command: %w", err)
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	if _, err := o.in.Write(line); err != nil {
		return fmt.Errorf("tell a process that plays sidecars: %w", err)
	}
	return nil
}

func (p *Processes) read(out io.Reader) {
	lines := json.NewDecoder(out)
	for {
		var t notice
		if lines.Decode(&t) != nil {
			return
		}
		if t.Unready != "" && p.unready != nil {
			p.unready(t.Unready)
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

// Failures are the calls that failed so far, and why the last one did.
func (p *Processes) Failures() (int64, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed, p.why
}

// Noticed are those of some Servers that were told to drain, with when.
func (p *Processes) Noticed(names []string) map[string]time.Time {
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

// Stop ends the processes.
func (p *Processes) Stop() error {
	var errs []error
	for _, o := range p.all {
		errs = append(errs, process.End(o.cmd, o.ended, "a process that plays sidecars"))
	}
	p.reading.Wait()
	return errors.Join(errs...)
}
