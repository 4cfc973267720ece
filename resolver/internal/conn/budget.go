package conn

import "sync/atomic"

// Budget bounds the bytes that are kept for all clients together. Bounds on one client or one
// service would not bound the program's memory.
type Budget struct {
	max  int64
	used atomic.Int64
	// of is a larger budget that all bytes are taken from as well; may be nil.
	of *Budget
}

// NewBudget makes a budget of a number of bytes.
func NewBudget(bytes int64) *Budget { return &Budget{max: bytes} }

// Part makes a budget whose bytes are taken from this one, too.
func (b *Budget) Part(bytes int64) *Budget { return &Budget{max: bytes, of: b} }

// Some takes up to n bytes and returns how many; 0 when nothing is left.
func (b *Budget) Some(n int) int {
	for {
		used := b.used.Load()
		got := min(int64(n), b.max-used)
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

// All takes n bytes, or none, and reports which. A nil budget has any number.
func (b *Budget) All(n int) bool {
	if b == nil {
		return true
	}
	if b.used.Add(int64(n)) > b.max || b.of != nil && !b.of.All(n) {
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
		if b.used.Load() >= b.max {
			return true
		}
	}
	return false
}

// Used is how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }
