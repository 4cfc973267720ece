package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"dormouse.dev/dormouse/test/player"
)

// played is a line that the player prints.
type played struct {
	// Event is "sent" when the first message leaves and "reply" when its reply
	// came.
	Event string `json:"event"`
	// Peer is where the server saw the player come from; with "reply" only.
	Peer string `json:"peer,omitempty"`
}

// playTime bounds a session.
const playTime = 5 * time.Minute

// play is "gameserver play ADDRESS": the same image as a player, for clusters
// that can't be reached from where the demo runs. It plays until it is told to
// end.
func play(ctx context.Context, address string) error {
	bounded, cancel := context.WithTimeout(ctx, playTime)
	defer cancel()
	lines := json.NewEncoder(os.Stdout)
	if err := lines.Encode(played{Event: "sent"}); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	p, err := player.DialTCP(bounded, address, player.Options{})
	if err != nil {
		return err
	}
	reply, err := p.Exchange(bounded)
	if err != nil {
		return errors.Join(err, p.Close())
	}
	if err := lines.Encode(played{Event: "reply", Peer: reply.Peer}); err != nil {
		return errors.Join(fmt.Errorf("print: %w", err), p.Close())
	}
	err = p.Play(bounded, 100*time.Millisecond)
	return errors.Join(err, p.Close())
}
