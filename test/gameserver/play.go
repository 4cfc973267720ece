package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"dormouse.dev/dormouse/test/player"
)

// played is a line that the player prints.
type played struct {
	// Event is "sent" when the first message leaves and "reply" when its reply
	// came.
	Event string `json:"event"`
	// At is when.
	At time.Time `json:"at"`
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
	p, err := connect(bounded, address)
	if err != nil {
		return err
	}
	if err := lines.Encode(played{Event: "sent", At: p.Stats().Dialed}); err != nil {
		return errors.Join(fmt.Errorf("print: %w", err), p.Close())
	}
	reply, err := p.Exchange(bounded)
	if err != nil {
		return errors.Join(err, p.Close())
	}
	if err := lines.Encode(played{Event: "reply", At: p.Stats().FirstReply, Peer: reply.Peer}); err != nil {
		return errors.Join(fmt.Errorf("print: %w", err), p.Close())
	}
	err = p.Play(bounded, 100*time.Millisecond)
	return errors.Join(err, p.Close())
}

// connect tries again while the connection is refused: the node's kube-proxy
// may not have heard of a Service that was just made.
func connect(ctx context.Context, address string) (*player.Player, error) {
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	for {
		p, err := player.DialTCP(ctx, address, player.Options{})
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return p, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-retry.C:
		}
	}
}
