package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticksASecond is what /proc counts processor time in, on every Linux.
const ticksASecond = 100

// mib is a MiB's bytes.
const mib = 1 << 20

// Usage is what a process has used.
type Usage struct {
	// Processor is its processor time since it started.
	Processor time.Duration
	// RSS is its resident memory, and Peak the most of it, in MiB.
	RSS, Peak float64
}

// Used is what a process has used.
func Used(pid int) (Usage, error) {
	var u Usage
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, fmt.Errorf("read what a process uses: %w", err)
	}
	// After the name, which may have anything in it: the 14th and 15th of all
	// fields are user and system time, the 24th is the resident set in pages.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 22 {
		return u, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var numbers [3]float64
	for i, field := range []int{11, 12, 21} {
		if numbers[i], err = strconv.ParseFloat(fields[field], 64); err != nil {
			return u, fmt.Errorf("read what a process uses: %w", err)
		}
	}
	u.Processor = time.Duration((numbers[0] + numbers[1]) / ticksASecond * float64(time.Second))
	u.RSS = numbers[2] * float64(os.Getpagesize()) / mib
	u.Peak, err = peak(pid)
	return u, err
}

// peak is the most memory that a process had since ForgetPeak.
func peak(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read a process's peak memory: %w", err)
	}
	_, rest, found := strings.Cut(string(text), "VmHWM:")
	fields := strings.Fields(rest)
	if !found || len(fields) == 0 {
		return 0, nil // it has just ended
	}
	kib, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return 0, fmt.Errorf("read a process's peak memory: %w", err)
	}
	return kib / 1024, nil
}

// ForgetPeak lets the peak begin anew.
func ForgetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("reset a process's peak memory: %w", err)
	}
	return nil
}
