package chaos

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"dormouse.dev/dormouse/test/player"
)

// record is a session with all that was counted of it.
type record struct {
	Session
	stats player.Stats
	// asleep tells that its service was when it came, and boot how long that
	// takes to listen.
	asleep bool
	boot   time.Duration
	// direct sessions had nothing of Dormouse in their way.
	direct bool
}

// note adds to what was lost.
func (s *record) note(what string, err error) {
	if err == nil {
		return
	}
	if s.Loss != "" {
		s.Loss += "; "
	}
	s.Loss += what + ": " + strings.ReplaceAll(err.Error(), "\n", ", ")
}

// story tells all that is known of a session.
func (s *record) story(faults []*event) string {
	var b strings.Builder
	clock := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return t.Format("15:04:05.000")
	}
	fmt.Fprintf(&b, "session %d, %s to %s: %s\n", s.ID, s.Network, s.Service, s.Loss)
	fmt.Fprintf(&b, "  dialed %s, connected %s, first reply %s, ended %s\n",
		clock(s.Dialed), clock(s.stats.Connected), clock(s.stats.FirstReply), clock(s.Ended))
	fmt.Fprintf(&b, "  its packets went to %v; replies came by %v\n", s.Hops, s.stats.Paths)
	fmt.Fprintf(&b, "  sent %d, received %d, lost %d; slowest reply %s\n", s.stats.Sent, s.stats.Received, s.stats.Lost, s.stats.Slowest)
	for _, f := range faults {
		if f.overlaps(s.Dialed, s.Ended) {
			fmt.Fprintf(&b, "  meanwhile: %s\n", f)
		}
	}
	return b.String()
}

// ledger keeps the sessions that are over.
type ledger struct {
	mu      sync.Mutex
	records []*record
	open    int
}

func (l *ledger) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
}

func (l *ledger) add(s *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	l.records = append(l.records, s)
}

// counts are for a line of progress.
func (l *ledger) counts() (open, over, hurt int, messages uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.records {
		messages += s.stats.Received
		if s.Loss != "" {
			hurt++
		}
	}
	return l.open, len(l.records), hurt, messages
}
