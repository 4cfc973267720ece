package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopTime bounds the end of a process that was asked to end.
const stopTime = 10 * time.Second

// ticksASecond is what /proc counts processor time in, on every Linux.
const ticksASecond = 100

// process is one that this program started, and those that it started itself.
type process struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	ended chan error
}

// startProcess starts a program, which ends with this one.
func startProcess(ctx context.Context, name, program string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.CommandContext(ctx, program, args...), ended: make(chan error, 1)}
	p.cmd.Stderr = os.Stderr
	// A signal that lets it end what it started itself.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = stopTime
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	out, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer func() { _ = write.Close() }()
	p.cmd.Stdout = write
	if err := p.cmd.Start(); err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.out = bufio.NewReader(out)
	go func() {
		p.ended <- p.cmd.Wait()
		_ = out.Close()
	}()
	return p, nil
}

// line reads one line of what the process says.
func (p *process) line() (string, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("listen to %s: %w", p.name, err)
	}
	return strings.TrimSuffix(line, "\n"), nil
}

// tell writes one line to the process.
func (p *process) tell(line []byte) error {
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("tell %s: %w", p.name, err)
	}
	return nil
}

// stop ends the process. That it was told to is no error of its.
func (p *process) stop() error {
	_ = p.in.Close()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopTime):
		return errors.Join(fmt.Errorf("%s didn't end within %s", p.name, stopTime), p.cmd.Process.Kill())
	}
}

// pids are the process and all below it.
func (p *process) pids() []int {
	all := []int{p.cmd.Process.Pid}
	for i := 0; i < len(all); i++ {
		// Children are told for the thread that started them.
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", all[i]))
		for _, t := range threads {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", all[i], t.Name()))
			for field := range strings.FieldsSeq(string(text)) {
				if pid, err := strconv.Atoi(field); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// processor is the processor time that was used, in seconds.
func (p *process) processor() (float64, error) {
	total := 0.0
	for _, pid := range p.pids() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, fmt.Errorf("read what %s uses: %w", p.name, err)
		}
		// After the name, which may have anything in it: the 14th and 15th of all
		// fields are user and system time.
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 13 {
			return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
		}
		for _, field := range fields[11:13] {
			ticks, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return 0, fmt.Errorf("read what %s uses: %w", p.name, err)
			}
			total += ticks / ticksASecond
		}
	}
	return total, nil
}

// memory is the resident memory in bytes; what processes share counts once.
func (p *process) memory() (float64, error) {
	total := 0.0
	for _, pid := range p.pids() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, fmt.Errorf("read the memory of %s: %w", p.name, err)
		}
		for line := range strings.Lines(string(text)) {
			var kilobytes float64
			if n, _ := fmt.Sscanf(line, "Pss: %f kB", &kilobytes); n == 1 {
				total += kilobytes * 1024
			}
		}
	}
	if total == 0 {
		return 0, fmt.Errorf("the kernel says nothing of the memory of %s", p.name)
	}
	return total, nil
}
