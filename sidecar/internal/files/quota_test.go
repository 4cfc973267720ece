package files

import (
	"io/fs"
	"os"
	"testing"
	"time"
)

// A user writes while another one's login measures the disk: neither waits for the other, and
// what was written counts once.
func TestWhatIsWrittenDuringAMeasurementCounts(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	check(t, err)
	defer root.Close()
	q := newQuota(root, 1<<30)
	now := time.Unix(1_700_000_000, 0)
	q.measure(now)
	// As another login that has the turn, in the middle of the disk.
	q.turn.Lock()
	f, err := root.Create("world")
	check(t, err)
	defer f.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := q.write(f, -1, make([]byte, 1000), func() (int, error) { return f.Write(make([]byte, 1000)) })
		check(t, err)
	}()
	within(t, "write", done)
	q.turn.Unlock()
	for range 3 {
		now = now.Add(measureEvery)
		q.measure(now)
		if got := q.usedNow(); got != 1000 {
			t.Errorf("%d bytes count, want 1000", got)
		}
	}
}

func TestADirectoryKeepsItsGroup(t *testing.T) {
	w := newWorld(t, nil)
	c := w.sftp()
	check(t, os.Mkdir(w.root+"/world", 0o755))
	check(t, os.Chmod(w.root+"/world", 0o755|fs.ModeSetgid))
	check(t, c.Chmod("world", 0o700))
	info, err := os.Stat(w.root + "/world")
	check(t, err)
	if info.Mode() != fs.ModeDir|fs.ModeSetgid|0o700 {
		t.Errorf("its mode is %s", info.Mode())
	}
}
