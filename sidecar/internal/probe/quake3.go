package probe

import (
	"fmt"
	"net"
	"slices"

	"dormouse.dev/dormouse/internal/gameproto/quake3"
)

// askQuake3 queries a game of Quake 3's family for its players. A player with a ping of 0 is a
// bot, or somebody very near. Then it asks how many of them are people, which many games
// answer, and counts all as people where the game doesn't.
func askQuake3(conn net.Conn) (Status, error) {
	challenge := randomWord()
	var s quake3.Status
	err := exchange(conn, quake3.AppendStatusRequest(nil, challenge), func(b []byte) (err error) {
		if s, err = quake3.ParseStatus(b); err != nil {
			return err
		}
		return checkChallenge(s.Info, challenge)
	})
	if err != nil {
		return Status{}, err
	}
	capacity, ok := s.Info.Number(quake3.VarCapacity)
	if !ok {
		return Status{}, uncounted(fmt.Errorf("read the answer: %q is no number of players", s.Info[quake3.VarCapacity]))
	}
	players := len(s.Players)
	if slices.ContainsFunc(s.Players, func(p quake3.Player) bool { return p.Ping == 0 }) {
		if players, err = askHumans(conn, s); err != nil {
			return Status{}, err
		}
	}
	return Status{
		Players: players, Capacity: capacity,
		Version: s.Info[quake3.VarVersion], Name: s.Info[quake3.VarName],
	}, nil
}

// askHumans asks how many of the players are people. Those whose ping isn't 0 are, whatever the
// game answers.
func askHumans(conn net.Conn, s quake3.Status) (int, error) {
	challenge := randomWord()
	var info quake3.Info
	err := exchange(conn, quake3.AppendInfoRequest(nil, challenge), func(b []byte) (err error) {
		if info, err = quake3.ParseInfo(b); err != nil {
			return err
		}
		return checkChallenge(info, challenge)
	})
	if err != nil {
		return 0, uncounted(fmt.Errorf("ask how many players are bots: %w", err)) // it has answered the question before
	}
	people := 0
	for _, p := range s.Players {
		if p.Ping != 0 {
			people++
		}
	}
	if humans, ok := info.Number(quake3.VarHumans); ok {
		return max(people, humans), nil
	}
	if bots, ok := info.Number(quake3.VarBots); ok {
		return max(people, len(s.Players)-bots), nil
	}
	return len(s.Players), nil
}

// checkChallenge is an error if an answer is not to the question with the challenge. A few
// games don't repeat it.
func checkChallenge(info quake3.Info, challenge string) error {
	if got, ok := info[quake3.VarChallenge]; ok && got != challenge {
		return errOther
	}
	return nil
}
