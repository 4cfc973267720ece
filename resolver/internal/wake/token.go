package wake

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"dormouse.dev/dormouse/internal/serviceauth"
)

const (
	// lookEvery is how often the file's time is looked at.
	lookEvery = time.Second
	// readEvery is how often it is read even when its time hasn't changed.
	readEvery = time.Minute
)

// Token is a service account token in a file that kubelet replaces now and
// then. A file that can't be read for a while leaves the last token in use.
type Token struct {
	path string
	now  func() time.Time

	mu           sync.Mutex
	token        string
	modified     time.Time
	looked, read time.Time
	failed       error
}

// NewToken makes the token of a file.
func NewToken(path string) *Token { return &Token{path: path, now: time.Now} }

// Get gives the token; an error only when there never was one.
func (t *Token) Get() (string, error) {
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

func (t *Token) look(now time.Time) error {
	info, err := os.Stat(t.path)
	if err != nil {
		return fmt.Errorf("finding the token file: %w", err)
	}
	if t.token != "" && info.ModTime().Equal(t.modified) && now.Sub(t.read) < readEvery {
		return nil
	}
	if info.Size() > serviceauth.MaxTokenBytes {
		return fmt.Errorf("reading the token file: it has more than %d bytes", serviceauth.MaxTokenBytes)
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
