package conn

import "sync/atomic"

// Budget bounds the bytes that are kept for all clients together. Bounds on one client or one
// service would not bound the program's memory.
type Budget struct {
	max  int64
	used atomic.Int64
	// of is a larger budget that all bytes are taken from as well; may be nil.
	of *Budget
	// shares is set where max is all of that budget, and the rest of it bounds this part.
	shares bool
}

// NewBudget makes a budget of a number of bytes.
func NewBudget(bytes int64) *Budget { return &Budget{max: bytes} }

// Part makes a budget whose bytes are taken from this one, too.
func (b *Budget) Part(bytes int64) *Budget { return &Budget{max: bytes, of: b} }

// Share makes a part that may take so much of what is left of this budget, as LeftOfShare has it.
func (b *Budget) Share() *Budget { return &Budget{max: b.max, of: b, shares: true} }

// alpha is how many times as much as is left one sharer may have. With 8 it gets
// eight ninths at most where nobody else wants any, and others still find room.
const alpha = 8

// LeftOfShare is how much more one may take who has own of what several share, of which used is
// taken at most; 0 or less: nothing. It is the dynamic threshold of shared-memory switches: one
// that is flooded leaves some for the others.
func LeftOfShare(own, used, most int64) int64 {
	// It is how much can be taken until own is alpha times what is left then, rounded up.
	return (alpha*(most-used) - own + alpha) / (alpha + 1)
}

// left is how much may be taken by one who has used.
func (b *Budget) left(used int64) int64 {
	if !b.shares {
		return b.max - used
	}
	all := b.of.used.Load()
	return min(b.max-all, LeftOfShare(used, all, b.max))
}

// Some takes up to n bytes and returns how many; 0 when nothing is left.
func (b *Budget) Some(n int) int {
	for {
		used := b.used.Load()
		got := min(int64(n), b.left(used))
		if got <= 0 {
			return 0
		}
		if b.used.CompareAndSwap(used, used+got) {
			if b.of == nil {
				return int(got)
			}
			all := b.of.Some(int(got))
			b.used.Add(int64(all) - got)
			return all
		}
	}
}

// All takes n bytes, or none, and reports which. A nil budget has any number. Of a share all is
// taken where some may be.
func (b *Budget) All(n int) bool {
	if b == nil {
		return true
	}
	for {
		used := b.used.Load()
		if left := b.left(used); left <= 0 || left < int64(n) && !b.shares {
			return false
		}
		if b.used.CompareAndSwap(used, used+int64(n)) {
			break
		}
	}
	if b.of != nil && !b.of.All(n) {
		b.used.Add(-int64(n))
		return false
	}
	return true
}

// Force takes n bytes even where they are not left. It is for bytes that are passed on at once.
func (b *Budget) Force(n int) {
	for ; b != nil; b = b.of {
		b.used.Add(int64(n))
	}
}

// Give gives n bytes back.
func (b *Budget) Give(n int) { b.Force(-n) }

// Full reports whether nothing is left. A nil budget is never full.
func (b *Budget) Full() bool {
	for ; b != nil; b = b.of {
		if b.left(b.used.Load()) <= 0 {
			return true
		}
	}
	return false
}

// Used is how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }
