package files

import (
	"context"
	"io/fs"
	"os"
	"sync"
	"time"
)

const (
	// maxSize bounds a file in bytes: the largest that a file system of Linux takes, about.
	maxSize = 1 << 60
	// measureEvery is how old a measurement may be when a user logs in.
	measureEvery = time.Minute
	// A measurement ends after mostMeasured files, and goes mostDepth directories deep. On a disk that has more the
	// quota counts as used up: what isn't found isn't bounded.
	mostMeasured = 16 << 20
	mostDepth    = 64
)

// quota bounds the sum of the files' sizes. It measures the disk now and then, and in between
// counts what clients change: what the game writes meanwhile counts from the next measurement on.
type quota struct {
	root  *os.Root
	limit int64
	now   func() time.Time

	// turn is held by who measures, and measuredOnce is closed once there was a measurement, or the server ends.
	turn         sync.Mutex
	measured     time.Time
	measuredOnce chan struct{}

	// mu is held during a write: the size before it and after it is no other's.
	mu   sync.Mutex
	used int64
}

// newQuota makes a quota; with a limit of 0 it bounds nothing.
func newQuota(root *os.Root, limit int64) *quota {
	return &quota{root: root, limit: limit, now: time.Now, measuredOnce: make(chan struct{})}
}

// measure finds out how much is used, where that was long ago, until ctx ends. Others write meanwhile, and what they
// change is added. A disk with many files takes minutes: who writes waits for the first measurement, by await.
func (q *quota) measure(ctx context.Context) {
	if q.limit == 0 || !q.turn.TryLock() {
		return
	}
	defer q.turn.Unlock()
	first := q.measured.IsZero()
	if !first && q.now().Sub(q.measured) < measureEvery {
		return
	}
	before := q.usedNow()
	w := walk{ctx: ctx, left: mostMeasured}
	total := w.sizeOf(q.root, mostDepth)
	q.measured = q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used = max(0, total+q.used-before)
	if w.more {
		q.used = max(q.used, q.limit)
	}
	if first {
		close(q.measuredOnce)
	}
}

func (q *quota) usedNow() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used
}

// walk is a walk over the disk.
type walk struct {
	ctx context.Context
	// left is how many files it may still look at.
	left int
	// more is set where there are more, or deeper ones.
	more bool
}

// sizeOf is the size of the files in a directory, if it can be read. Names are read a few at a time: a game may
// write more of them than there is memory for.
func (w *walk) sizeOf(dir *os.Root, depth int) (total int64) {
	f, err := dir.Open(".")
	if err != nil {
		return 0
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(256)
		for _, name := range names {
			if w.ctx.Err() != nil {
				return total
			}
			if w.left--; w.left < 0 {
				w.more = true
				return total
			}
			total += w.sizeOfOne(dir, name, depth)
		}
		if err != nil {
			return total
		}
	}
}

// sizeOfOne is the size of what has a name in a directory: of a directory, that of what is in it.
func (w *walk) sizeOfOne(dir *os.Root, name string, depth int) int64 {
	info, err := dir.Lstat(name)
	switch {
	case err != nil:
		return 0
	case info.Mode().IsRegular():
		return info.Size()
	case !info.IsDir():
		return 0
	case depth == 0:
		w.more = true
		return 0
	}
	sub, err := dir.OpenRoot(name)
	if err != nil {
		return 0
	}
	defer sub.Close()
	// A link that took its place leads to what is counted elsewhere, or in a circle.
	if opened, err := sub.Stat("."); err != nil || !os.SameFile(info, opened) {
		return 0
	}
	return w.sizeOf(sub, depth-1)
}

// await waits for the first measurement, and calls waits meanwhile, now and then. It reports whether there was one
// before the client was gone.
func (q *quota) await(gone <-chan struct{}, waits func()) bool {
	if q.limit == 0 {
		return true
	}
	select {
	case <-q.measuredOnce:
		return true
	default:
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-q.measuredOnce:
			return true
		case <-gone:
			return false
		case <-ticker.C:
			waits()
		}
	}
}

// write, after await, writes to a file that may end at end then; -1: len(p) after its end.
func (q *quota) write(f *os.File, end int64, p []byte, write func() (int, error)) (int, error) {
	if q.limit == 0 {
		return write()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	size, err := sizeNow(f)
	if err != nil {
		return 0, err
	}
	if end < 0 {
		end = size + int64(len(p))
	}
	grows := max(0, end-size)
	if grows > 0 && q.used+grows > q.limit {
		return 0, errQuota
	}
	n, err := write()
	if after, statErr := sizeNow(f); statErr == nil {
		q.used += after - size
	}
	return n, err
}

// resize sets a file's size, after await where it grows.
func (q *quota) resize(f *os.File, to int64) error {
	if q.limit == 0 {
		return f.Truncate(to) //nolint:wrapcheck // answer does
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	size, err := sizeNow(f)
	if err != nil {
		return err
	}
	if to > size && q.used+to-size > q.limit {
		return errQuota
	}
	if err := f.Truncate(to); err != nil {
		return err //nolint:wrapcheck // answer does
	}
	q.used += to - size
	return nil
}

// freed counts a file that is gone. One that has other names, or is still open, is counted as
// gone, too, until the next measurement.
func (q *quota) freed(info fs.FileInfo) {
	if q.limit == 0 || !info.Mode().IsRegular() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used = max(0, q.used-info.Size())
}

func sizeNow(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err //nolint:wrapcheck // answer does
	}
	return info.Size(), nil
}
