package guard

import "sync/atomic"

// alpha is how many times as much as is left one service may have. With 8 it gets
// eight ninths at most where nobody else wants any, and others still find room.
const alpha = 8

// Share divides what all services have together: one that is flooded leaves some
// for the others. It is the dynamic threshold of shared-memory switches.
type Share struct {
	most int64
	used atomic.Int64
}

// NewShare makes one of a number of places.
func NewShare(most int) *Share { return &Share{most: int64(most)} }

// Take takes a place for a service that has own; false: it has its share, or there
// is none left.
func (s *Share) Take(own *atomic.Int32) bool {
	had, used := int64(own.Add(1))-1, s.used.Add(1)-1
	if had >= alpha*(s.most-used) {
		s.Give(own)
		return false
	}
	return true
}

// Force takes a place even where none is left.
func (s *Share) Force(own *atomic.Int32) {
	own.Add(1)
	s.used.Add(1)
}

// Give gives one back.
func (s *Share) Give(own *atomic.Int32) {
	own.Add(-1)
	s.used.Add(-1)
}

// Used is how many are taken.
func (s *Share) Used() int { return int(s.used.Load()) }
