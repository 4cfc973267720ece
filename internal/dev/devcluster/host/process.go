package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"dormouse.dev/dormouse/internal/dev/devcluster/wait"
)

// startOf identifies the process that has a pid now: the boot and the clock
// tick it started at. A pid that was given to another process since, or before
// a reboot, has another. It is empty when there is no such process, or only a
// zombie.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	ticks, state := parseStat(stat)
	if state == "Z" || state == "X" {
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "/" + ticks
}

// parseStat reads the start time (field 22) and the state (field 3) of
// proc_pid_stat(5). The second field is a name in parentheses that may have
// anything in it.
func parseStat(stat []byte) (ticks, state string) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return "", ""
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) < 20 {
		return "", ""
	}
	return fields[19], fields[0]
}

// RecordOf is the record of the process that has a pid now.
func RecordOf(name string, pid int) Record {
	return Record{Kind: KindProcess, Name: name, PID: pid, Started: startOf(pid)}
}

// Alive reports whether the recorded process still runs.
func (r Record) Alive() bool {
	return r.PID > 0 && r.Started != "" && startOf(r.PID) == r.Started
}

// Signal sends a signal to the recorded process, and to nothing else: a
// process that is gone is not an error.
func (r Record) Signal(s syscall.Signal) error {
	// The handle stays with the process it was opened for, so that the check
	// and the signal are about the same one.
	handle, err := os.FindProcess(r.PID)
	if err != nil {
		return nil
	}
	defer func() { _ = handle.Release() }()
	if !r.Alive() {
		return nil
	}
	if err := handle.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s (pid %d): %w", r.Name, r.PID, err)
	}
	return nil
}

// Stop kills the recorded process and waits until it is gone.
func (r Record) Stop(ctx context.Context) error {
	if err := r.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	return wait.Until(ctx, 10*time.Second, func(context.Context) error {
		if r.Alive() {
			return fmt.Errorf("stop %s: pid %d does not end", r.Name, r.PID)
		}
		return nil
	})
}

// Start starts a process in the group and in a session of its own, so that it outlives the
// command that started it. It gets the given environment besides a PATH, and writes to log.
func (c Cgroup) Start(name string, argv, env []string, log *os.File) (Record, error) {
	group, err := os.Open(c.processes())
	if err != nil {
		return Record{}, fmt.Errorf("open cgroup for %s: %w", name, err)
	}
	defer group.Close()

	if err := keepFiles(); err != nil {
		return Record{}, fmt.Errorf("keep files from %s: %w", name, err)
	}
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // it outlives the context of whoever starts it
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = detached(group)
	if err := cmd.Start(); err != nil {
		return Record{}, fmt.Errorf("start %s: %w", name, err)
	}
	// While this program lives it is the parent, and has to reap.
	go func() { _ = cmd.Wait() }()
	return RecordOf(name, cmd.Process.Pid), nil
}
