package probe

import (
	"fmt"
	"net"

	"dormouse.dev/dormouse/internal/gameproto/source"
)

// maxChallenges bounds how often a server may ask for a challenge: it may just
// have changed them, but not each time.
const maxChallenges = 3

// askSource queries a server that speaks Valve's protocol for its info. Only the socket, which
// is the query's own, distinguishes an answer from one to an earlier query.
func askSource(conn net.Conn) (Status, error) {
	var challenge *source.Challenge
	for range maxChallenges {
		answer, err := sourceAnswer(conn, source.AppendInfoRequest(nil, challenge))
		if err != nil {
			return Status{}, err
		}
		if i := answer.Info; i != nil {
			return Status{Players: i.Humans(), Capacity: int(i.Capacity), Version: i.Version, Name: i.Name}, nil
		}
		challenge = answer.Challenge
	}
	return Status{}, fmt.Errorf("answer the server's challenge: it has sent %d and no info", maxChallenges)
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
