package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"dormouse.dev/dormouse/test/bench/process"
)

// program is one that the benchmark starts, and may start again.
type program struct {
	name string
	// as is what it goes by, for the API server, too; empty: its name.
	as   string
	path string
	args []string
	env  []string
	// log is a file.
	log string

	cmd   *exec.Cmd
	ended chan error
	// before is what its earlier processes used.
	before time.Duration
}

func (p *program) start(ctx context.Context) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p.name, err)
	}
	defer func() { _ = log.Close() }()
	// It ends when it is told to, so that the others outlive none that they need.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), p.path)
	// Kubernetes' one binary goes by the name that it is started as.
	cmd.Args = append([]string{filepath.Join(filepath.Dir(p.path), cmp.Or(p.as, p.name))}, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	// A terminal's Ctrl-C is for the benchmark, which ends the others in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.ended = cmd, make(chan error, 1)
	go func(ended chan<- error) { ended <- cmd.Wait() }(p.ended)
	return nil
}

// alive is nil while it runs.
func (p *program) alive() error {
	select {
	case err := <-p.ended:
		p.ended <- err
		return fmt.Errorf("%s ended, and its log is %s: %w", p.name, p.log, errors.Join(errors.New("nobody told it to"), err))
	default:
		return nil
	}
}

// stop tells it to end, and waits for that.
func (p *program) stop() error {
	if p.cmd == nil {
		return nil
	}
	err := p.alive()
	if err == nil {
		err = process.End(p.cmd, p.ended, p.name)
	}
	p.note()
	return err
}

// kill ends it as a lost node would.
func (p *program) kill() error {
	if p.cmd == nil {
		return nil
	}
	err := p.alive()
	if err == nil {
		if err = p.cmd.Process.Kill(); err == nil {
			<-p.ended
		}
	}
	p.note()
	return err
}

// note notes that it ended.
func (p *program) note() {
	if state := p.cmd.ProcessState; state != nil {
		p.before += state.UserTime() + state.SystemTime()
	}
	p.cmd = nil
}

// used is what it has used in all its processes.
func (p *program) used() (process.Usage, error) {
	if p.cmd == nil {
		return process.Usage{Processor: p.before}, nil
	}
	if err := p.alive(); err != nil {
		return process.Usage{}, err
	}
	u, err := process.Used(p.cmd.Process.Pid)
	u.Processor += p.before
	return u, err
}
