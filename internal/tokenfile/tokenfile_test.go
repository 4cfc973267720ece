package tokenfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTheTokenFollowsItsFile(t *testing.T) {
	now := time.Now()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	token := New(file)
	token.now = func() time.Time { return now }
	expect := func(want string) {
		t.Helper()
		if got, err := token.Get(); err != nil || got != want {
			t.Fatalf("token %q, %v; want %q", got, err, want)
		}
	}
	replace := func(text string, modified time.Time) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Chtimes(file, modified, modified)); err != nil {
			t.Fatal(err)
		}
	}
	expect("first")
	replace("second", now.Add(time.Hour))
	expect("first") // looked at a moment ago
	now = now.Add(lookEvery)
	expect("second")
	replace("third", now.Add(2*time.Hour))
	replace("fourth", now.Add(2*time.Hour))
	now = now.Add(lookEvery)
	expect("fourth")
	// Replaced without a sign of it in the file's time.
	replace("fifth", now.Add(2*time.Hour))
	now = now.Add(readEvery)
	expect("fifth")
	for _, bad := range []string{"", "two words", strings.Repeat("x", 20<<10)} {
		replace(bad, now.Add(5*time.Hour))
		now = now.Add(readEvery)
		expect("fifth")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	now = now.Add(readEvery)
	expect("fifth")
	if _, err := New(file).Get(); err == nil {
		t.Error("a token that never was is given")
	}
}
