package devcluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// kind says how a thing on the ledger is removed.
type kind string

const (
	kindProcess   kind = "process"
	kindCgroup    kind = "cgroup"
	kindNamespace kind = "namespace"
	kindInterface kind = "interface"
	kindRoute     kind = "route"
	kindMount     kind = "mount"
	kindLink      kind = "link"
)

// record is one thing that was made, or was about to be. Name is a component,
// a path, a namespace, an interface or a route in ip's words.
type record struct {
	Kind kind   `json:"kind"`
	Name string `json:"name"`
	// PID and Started identify a process; see [startOf].
	PID     int    `json:"pid,omitempty"`
	Started string `json:"started,omitempty"`
}

// ledger is the append-only list of what is on the machine because of the
// cluster. It is what makes a cluster removable by a program that did not make
// it.
type ledger struct {
	path string
	mu   sync.Mutex
}

// add appends a record and has it on disk before it returns.
func (l *ledger) add(r record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode ledger record of %s %s: %w", r.Kind, r.Name, err)
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open ledger: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write ledger record of %s %s: %w", r.Kind, r.Name, err)
	}
	return nil
}

// records are all that was added, in order; none when there is no ledger. A
// last line cut short by a crash was written before the thing was made, and is
// left out.
func (l *ledger) records() ([]record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	defer f.Close()
	var records []record
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r record
		if json.Unmarshal(lines.Bytes(), &r) == nil {
			records = append(records, r)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	return records, nil
}

// processes maps each component to its latest process.
func (l *ledger) processes() (map[string]record, error) {
	records, err := l.records()
	if err != nil {
		return nil, err
	}
	latest := map[string]record{}
	for _, r := range records {
		if r.Kind == kindProcess {
			latest[r.Name] = r
		}
	}
	return latest, nil
}
