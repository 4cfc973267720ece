package probe

import (
	"fmt"
	"net"
	"sync/atomic"

	"dormouse.dev/dormouse/internal/gameproto/source"
)

// maxChallenges bounds how often a server may ask for a challenge: it may just
// have changed them, but not each time.
const maxChallenges = 3

// sourceServer is a server that speaks Valve's protocol.
type sourceServer struct {
	// botsApart is set once the server has reported more bots than players: it doesn't count them among
	// its players, then or later, when there are as many people as bots.
	botsApart atomic.Bool
}

// ask queries the server for its info. Only the socket, which is the query's own, distinguishes an
// answer from one to an earlier query.
func (s *sourceServer) ask(conn net.Conn) (Status, error) {
	var challenge *source.Challenge
	for range maxChallenges {
		answer, err := sourceAnswer(conn, source.AppendInfoRequest(nil, challenge))
		if err != nil {
			return Status{}, err
		}
		if i := answer.Info; i != nil {
			return Status{Players: s.humans(i), Capacity: int(i.Capacity), Version: i.Version, Name: i.Name}, nil
		}
		challenge = answer.Challenge
	}
	return Status{}, uncounted(fmt.Errorf("answer the server's challenge: it has sent %d and no info", maxChallenges))
}

// humans is how many people play.
func (s *sourceServer) humans(i *source.Info) int {
	if i.Bots > i.Players {
		s.botsApart.Store(true)
	}
	if s.botsApart.Load() {
		return int(i.Players)
	}
	return i.Humans()
}

// sourceAnswer reads an answer, which may come in parts.
func sourceAnswer(conn net.Conn, request []byte) (source.Answer, error) {
	var answer source.Answer
	parts := source.Parts{}
	err := exchange(conn, request, func(b []byte) error {
		if source.IsPart(b) {
			part, err := source.ParsePart(b)
			if err != nil {
				return err
			}
			if b, err = parts.Add(part); err != nil {
				return err
			}
			if b == nil {
				return errOther
			}
		}
		var err error
		answer, err = source.ParseAnswer(b)
		return err
	})
	return answer, err
}
