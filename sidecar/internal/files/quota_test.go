package files

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A user writes while another one's login measures the disk: neither waits for the other, and
// what was written counts once.
func TestWhatIsWrittenDuringAMeasurementCounts(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	check(t, err)
	defer root.Close()
	q := newQuota(root, 1<<30)
	now := time.Unix(1_700_000_000, 0)
	q.now = func() time.Time { return now }
	q.measure(t.Context())
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
		q.measure(t.Context())
		if got := q.usedNow(); got != 1000 {
			t.Errorf("%d bytes count, want 1000", got)
		}
	}
}

// The first measurement takes long. Reading doesn't wait for it, and writing does.
func TestWhoWritesWaitsForTheFirstMeasurement(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Quota, o.IdleTimeout = 1000, 2*time.Second }, func(s *Server) {
		s.disk.quota.turn.Lock() // as one that is under way
	})
	w.write(w.root+"/world", string(make([]byte, 900)))
	c, conn := w.sftp(), w.login()
	leaves, err := sftp.NewClient(conn)
	check(t, err)
	if _, err := c.ReadDir("."); err != nil {
		t.Error(err)
	}
	write := func(c *sftp.Client, name string) <-chan error {
		wrote := make(chan error, 1)
		go func() {
			f, err := c.Create(name)
			if err == nil {
				_, err = f.Write(make([]byte, 200))
			}
			wrote <- err
		}()
		return wrote
	}
	received := func() float64 { return testutil.ToFloat64(w.metrics.bytes.WithLabelValues("received")) }
	before := received()
	left := write(leaves, "other")
	w.until("it writes", func() bool { return received() >= before+200 })
	check(t, conn.Close())
	<-left
	w.until("who is gone keeps no place", func() bool { return testutil.ToFloat64(w.metrics.sessions) == 1 })
	wrote := write(c, "more")
	select {
	case err := <-wrote:
		t.Fatalf("it was written before the disk was measured, or the session ended: %v", err)
	case <-time.After(2 * w.opts.IdleTimeout):
	}
	w.disk.quota.turn.Unlock()
	w.disk.quota.measure(t.Context())
	if err := <-wrote; err == nil || !strings.Contains(err.Error(), "quota") {
		t.Errorf("over the quota: %v", err)
	}
}

// What a measurement doesn't find isn't bounded by the quota, so nothing may grow where there is more than that.
func TestADirectoryThatIsTooDeepUsesUpTheQuota(t *testing.T) {
	dir := t.TempDir()
	deepest := dir + strings.Repeat("/d", mostDepth)
	check(t, os.MkdirAll(deepest, 0o755))
	check(t, os.WriteFile(deepest+"/small", []byte("here"), 0o600))
	root, err := os.OpenRoot(dir)
	check(t, err)
	defer root.Close()
	q := newQuota(root, 1<<20)
	now := time.Unix(1_700_000_000, 0)
	q.now = func() time.Time { return now }
	wants := func(what string, used int64) {
		t.Helper()
		now = now.Add(measureEvery)
		if q.measure(t.Context()); q.usedNow() != used {
			t.Errorf("with %s %d bytes count, want %d", what, q.usedNow(), used)
		}
	}
	wants("a file in the deepest directory", 4)
	check(t, os.Mkdir(deepest+"/d", 0o755))
	wants("a deeper directory", 1<<20)
	f, err := root.Create("world")
	check(t, err)
	defer f.Close()
	if _, err := q.write(f, -1, []byte("more"), func() (int, error) { return f.Write([]byte("more")) }); !errors.Is(err, errQuota) {
		t.Errorf("a file grows then: %v", err)
	}
	check(t, os.Remove(deepest+"/d"))
	wants("that removed", 4)
}

func TestMoreFilesThanAreMeasured(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		check(t, os.WriteFile(dir+"/"+name, []byte("x"), 0o600))
	}
	root, err := os.OpenRoot(dir)
	check(t, err)
	defer root.Close()
	for left, more := range map[int]bool{2: true, 3: false} {
		w := walk{ctx: t.Context(), left: left}
		if size := w.sizeOf(root, 0); size != int64(left) || w.more != more {
			t.Errorf("of 3 files and at most %d: %d bytes, more: %v", left, size, w.more)
		}
	}
}

// A directory into which its owner can't look has files that no measurement finds, and nobody can mend that.
func TestADirectoryKeepsItsOwnersRights(t *testing.T) {
	w := newWorld(t, nil)
	check(t, os.Mkdir(w.root+"/world", 0o755))
	check(t, w.sftp().Chmod("world", 0o044))
	info, err := os.Stat(w.root + "/world")
	check(t, err)
	if info.Mode().Perm() != 0o744 {
		t.Errorf("its mode is %s", info.Mode())
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
