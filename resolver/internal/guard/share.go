package guard

import "sync/atomic"

// alpha is how many times as much as is left one service may have. With 8 it gets
// eight ninths at most where nobody else wants any, and others still find room.
const alpha = 8

// Share divides what all services share, so that one that is flooded leaves some for the
// others. It is the dynamic threshold of shared-memory switches.
type Share struct {
	most int64
	used atomic.Int64
}

// NewShare makes one of a number of places.
func NewShare(most int) *Share { return &Share{most: int64(most)} }

// Take takes n places for a service that has own already; false: it has its share, or there are
// none left.
func (s *Share) Take(own *atomic.Int32, n int32) bool {
	had, used := int64(own.Add(n)-n), s.used.Add(int64(n))-int64(n)
	if had >= alpha*(s.most-used) || used+int64(n) > s.most {
		s.Force(own, -n)
		return false
	}
	return true
}

// Force takes n places even where they are not left, or gives them back.
func (s *Share) Force(own *atomic.Int32, n int32) {
	own.Add(n)
	s.used.Add(int64(n))
}

// Used is how many are taken.
func (s *Share) Used() int { return int(s.used.Load()) }
