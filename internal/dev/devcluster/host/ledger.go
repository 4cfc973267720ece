// Package host is what a cluster leaves on the machine that it runs on, and how that is taken
// away again: a ledger of all that was made, processes and their cgroup, network namespaces,
// interfaces, routes and mounts. It knows what such a thing is, and not what a cluster is made
// of.
package host

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// Kind says how a thing on the ledger is removed.
type Kind string

// Kinds of what a cluster makes.
const (
	KindProcess   Kind = "process"
	KindCgroup    Kind = "cgroup"
	KindNamespace Kind = "namespace"
	KindInterface Kind = "interface"
	KindRoute     Kind = "route"
	KindMount     Kind = "mount"
	KindLink      Kind = "link"
)

// Record is one thing that was made, or was about to be. Name is a component,
// a path, a namespace, an interface or a route in ip's words.
type Record struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// PID and Started identify a process; see [RecordOf].
	PID     int    `json:"pid,omitempty"`
	Started string `json:"started,omitempty"`
}

// Ledger is the append-only list of what is on the machine because of the
// cluster. It is what makes a cluster removable by a program that did not make
// it.
type Ledger struct {
	path string
	mu   sync.Mutex
}

// NewLedger is the ledger in a file, which needn't be there yet.
func NewLedger(path string) *Ledger { return &Ledger{path: path} }

// Add appends a record and has it on disk before it returns.
func (l *Ledger) Add(r Record) error {
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

// Records are all that was added, in order; none when there is no ledger. A
// last line cut short by a crash was written before the thing was made, and is
// left out.
func (l *Ledger) Records() ([]Record, error) {
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
	var records []Record
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r Record
		if json.Unmarshal(lines.Bytes(), &r) == nil {
			records = append(records, r)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	return records, nil
}

// Processes maps each component to its latest process.
func (l *Ledger) Processes() (map[string]Record, error) {
	records, err := l.Records()
	if err != nil {
		return nil, err
	}
	latest := map[string]Record{}
	for _, r := range records {
		if r.Kind == KindProcess {
			latest[r.Name] = r
		}
	}
	return latest, nil
}
