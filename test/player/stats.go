package player

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"dormouse.dev/dormouse/test/gamewire"
)

// Stats is what a player has counted.
type Stats struct {
	// Dialed is when the player asked for its connection, Connected when it had
	// it, FirstSent when its first message left, FirstReply when the first reply
	// came.
	Dialed, Connected, FirstSent, FirstReply time.Time

	// Sent and Received count messages and replies, BytesSent and BytesReceived
	// the bytes of both as they are on the wire above TCP and UDP.
	Sent, Received           uint64
	BytesSent, BytesReceived uint64

	// ServerMessages and ServerBytes are the most that the server has said to
	// have received in this session.
	ServerMessages, ServerBytes uint64

	// Lost are messages without a reply, so far. Reordered are replies that came
	// after that of a later message, Duplicated those that had come before,
	// Corrupt those that differ from what was asked.
	Lost, Reordered, Duplicated, Corrupt uint64

	// Resets are connections cut by a reset, Ends those closed by the server,
	// Refused those that nobody took.
	Resets, Ends, Refused uint64
	// Err is why the session ended; nil while it goes on, and after Close.
	Err error

	// Slowest is the longest time from a message to its reply.
	Slowest time.Duration
	// First and Last are the first and the last reply.
	First, Last gamewire.Reply
	// Paths are the ways that replies told of, in the order of their first
	// appearance. A session that nobody moved has one.
	Paths []Path

	highest uint64
}

// Path is where a session was seen to end: a server, one start of its process,
// and the address that the server saw the session come from.
type Path struct {
	Server, Boot, Peer string
}

// PeerIP is the IP address of Peer, or the zero one.
func (p Path) PeerIP() netip.Addr {
	peer, err := netip.ParseAddrPort(p.Peer)
	if err != nil {
		return netip.Addr{}
	}
	return peer.Addr().Unmap()
}

// Through reports whether the session came from one of the addresses, such as
// those of the resolver's pods.
func (p Path) Through(addresses ...netip.Addr) bool {
	return slices.Contains(addresses, p.PeerIP())
}

// ListeningToFirstByte is the time from the opening of the server's ports to the
// session's first byte there, by the server's clock alone.
func (s Stats) ListeningToFirstByte() time.Duration {
	return time.Duration(s.First.FirstByte - s.First.Listening)
}

// Intact returns nil if every message was received once by one server in one
// session, unchanged and in order, and every reply came back so. It says what is
// wrong otherwise, all of it.
func (s Stats) Intact() error {
	var found []error
	note := func(wrong bool, format string, values ...any) {
		if wrong {
			found = append(found, fmt.Errorf(format, values...))
		}
	}
	note(s.Lost > 0, "%d of %d messages without a reply", s.Lost, s.Sent)
	note(s.Reordered > 0, "%d replies out of order", s.Reordered)
	note(s.Duplicated > 0, "%d replies more than once", s.Duplicated)
	note(s.Corrupt > 0, "%d replies corrupt", s.Corrupt)
	note(s.Resets > 0, "connection reset")
	note(s.Ends > 0, "connection closed by the server")
	note(s.Refused > 0, "%d times refused", s.Refused)
	note(s.Err != nil, "session ended: %w", s.Err)
	note(len(s.Paths) > 1, "session was moved: %v", s.Paths)
	note(s.ServerMessages != s.Sent, "the server received %d messages of %d", s.ServerMessages, s.Sent)
	note(s.ServerBytes != s.BytesSent, "the server received %d bytes of %d", s.ServerBytes, s.BytesSent)
	return errors.Join(found...)
}

func (s *Stats) addPath(path Path) {
	if !slices.Contains(s.Paths, path) {
		s.Paths = append(s.Paths, path)
	}
}

func (s *Stats) clone() Stats {
	c := *s
	c.Paths = slices.Clone(s.Paths)
	return c
}
