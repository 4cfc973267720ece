package guard

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// epoch is what times are counted from, so that they don't jump when the clock is changed.
var epoch = time.Now()

func since(now time.Time) int64 { return int64(now.Sub(epoch)) }

// rate allows so many in a period, and all of them at once if they come so.
type rate struct {
	count  int64
	period time.Duration
}

func perMinute(n int32) rate { return rate{int64(n), time.Minute} }

// skew is the part of the time between two tokens, as a divisor, by which the clocks of
// concurrent callers may differ.
const skew = 64

// bucket is a token bucket, full at first, stored in one number: the time at which it will be
// full again. It is the Generic Cell Rate Algorithm.
type bucket struct{ full atomic.Int64 }

// take takes a token; false: there is none.
func (b *bucket) take(now int64, r rate) bool {
	each := int64(r.period) / r.count
	for {
		was := b.full.Load()
		full := max(was, now) + each
		if full-now > int64(r.period)+each/skew {
			return false
		}
		if b.full.CompareAndSwap(was, full) {
			return true
		}
	}
}

// A sketch has rows of cells. It is 32 KiB large.
const (
	rows  = 2
	cells = 2048
)

// sketch keeps the rates of any number of sources in a table of fixed size, as a
// count-min sketch keeps counts: each source has a cell in each row, which it shares
// with others, and is refused only where both are empty. Nothing is ever evicted, so
// that nobody can make it forget, and nobody can choose whom to share cells with.
type sketch struct {
	seed  maphash.Seed
	table [rows][cells]bucket
}

func newSketch() *sketch { return &sketch{seed: maphash.MakeSeed()} }

func (s *sketch) take(k key, now int64, r rate) bool {
	h := maphash.Bytes(s.seed, k[:])
	first := s.table[0][h%cells].take(now, r)
	second := s.table[1][(h>>32)%cells].take(now, r)
	return first || second
}

// lazySketch is a sketch that is made when it is first used.
type lazySketch struct{ made atomic.Pointer[sketch] }

func (l *lazySketch) take(k key, now int64, r rate) bool {
	if l.made.Load() == nil {
		l.made.CompareAndSwap(nil, newSketch())
	}
	return l.made.Load().take(k, now, r)
}
