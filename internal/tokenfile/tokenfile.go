// Package tokenfile reads the service account tokens with which Dormouse's programs identify
// themselves.
package tokenfile

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// DefaultPath is where a Pod has the token, unless a flag says otherwise.
const DefaultPath = "/var/run/secrets/dormouse.dev/token"

// MaxBytes bounds a token. Kubernetes' own have about 1 KiB.
const MaxBytes = 16 << 10

const (
	// lookEvery is how often the file's modification time is checked.
	lookEvery = time.Second
	// readEvery is how often it is read even when its time hasn't changed.
	readEvery = time.Minute
)

// File is a service account token in a file that kubelet replaces periodically. While the file
// can't be read the last token stays in use.
type File struct {
	path string
	now  func() time.Time

	mu           sync.Mutex
	token        string
	modified     time.Time
	looked, read time.Time
	failed       error
}

// New makes the token of a file.
func New(path string) *File { return &File{path: path, now: time.Now} }

// Get returns the token; an error only when there never was one.
func (t *File) Get() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if t.looked.IsZero() || now.Sub(t.looked) >= lookEvery {
		t.looked = now
		t.failed = t.look(now)
	}
	if t.token == "" {
		return "", t.failed
	}
	return t.token, nil
}

func (t *File) look(now time.Time) error {
	info, err := os.Stat(t.path)
	if err != nil {
		return fmt.Errorf("finding the token file: %w", err)
	}
	if t.token != "" && info.ModTime().Equal(t.modified) && now.Sub(t.read) < readEvery {
		return nil
	}
	if info.Size() > MaxBytes {
		return fmt.Errorf("reading the token file: it has more than %d bytes", MaxBytes)
	}
	raw, err := os.ReadFile(t.path)
	if err != nil {
		return fmt.Errorf("reading the token file: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if token == "" || strings.ContainsAny(token, " \r\n\t") {
		return errors.New("reading the token file: it does not hold one token")
	}
	t.token, t.modified, t.read = token, info.ModTime(), now
	return nil
}
