package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dormouse.dev/dormouse/test/chaos/schedule"
	"dormouse.dev/dormouse/test/player"
)

// Bounds of a session.
const (
	// servedWithin is how long a player waits for its first reply. Several
	// faults may come in a row while it is held.
	servedWithin = 2 * time.Minute
	// heldInterval is how often a player knocks who has no reply yet. UDP has
	// no backpressure: a client that sent at full speed would overrun the bound
	// on what is held for it.
	heldInterval = 250 * time.Millisecond
	// silence is after how long without a reply a player gives up. A TCP
	// connection's retransmissions back off for longer than the link was cut.
	silence = time.Minute
	// Late replies are waited for: over UDP they come at once or not at all,
	// unless a resolver is paused.
	drainTCP, drainUDP = time.Minute, 20 * time.Second
)

// playSession plays one session from its beginning to its end.
func (r *run) playSession(ctx context.Context, v schedule.Session, id int) {
	g := r.games[v.Game]
	s := &record{
		Session: Session{ID: id, Service: g.Name, Network: v.Network, Dialed: time.Now()},
		asleep:  r.phases.asleep(v.Game), boot: g.BootDelay,
	}
	defer r.ledger.add(s)
	var port string
	open := player.DialTCP
	if v.Network == "udp" {
		open = player.DialUDP
	}
	connect, cancel := context.WithTimeout(ctx, servedWithin)
	p, err := open(connect, r.address(v), player.Options{Dial: r.dialPlayer(&port)})
	cancel()
	if err == nil {
		s.note("end early", r.stay(ctx, p, v))
		drained, cancel := context.WithTimeout(ctx, map[string]time.Duration{"tcp": drainTCP, "udp": drainUDP}[v.Network])
		_ = p.Drain(drained) // What is missing is counted below.
		cancel()
		s.Ended = time.Now()
		s.stats = p.Stats()
		if err := p.Close(); err != nil {
			s.note("close", err)
		}
		s.note("not intact", s.stats.Intact())
	} else {
		s.Ended = time.Now()
		s.note("never connected", err)
	}
	s.Hops = r.flows.take(ctx, flow{v.Network, port})
	for i, path := range s.stats.Paths {
		server := r.phases.server(path.Server)
		// Straight there is where kube-proxy sent it first.
		s.direct = i == 0 && len(s.Hops) > 0 && s.Hops[0] == server
		s.Hops = append(s.Hops, path.PeerIP(), server)
	}
}

// stay plays until the player has stayed as long as it wants. What ends a
// session before that is an error.
func (r *run) stay(ctx context.Context, p *player.Player, v schedule.Session) error {
	interval := time.NewTimer(0)
	defer interval.Stop()
	heard, received := time.Now(), uint64(0)
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("play: %w", ctx.Err())
		case <-p.Done():
			return errors.New("play: the connection ended")
		case <-interval.C:
		}
		if _, err := p.Send(); err != nil {
			return err
		}
		stats := p.Stats()
		now := time.Now()
		if stats.Received > received {
			heard, received = now, stats.Received
		}
		switch {
		case stats.FirstReply.IsZero() && now.Sub(stats.Dialed) > servedWithin:
			return fmt.Errorf("no reply within %s", servedWithin)
		case stats.FirstReply.IsZero():
			interval.Reset(heldInterval)
			continue
		case now.Sub(heard) > silence:
			return fmt.Errorf("no reply for %s", silence)
		case now.Sub(stats.FirstReply) >= v.Stay:
			return nil
		}
		interval.Reset(v.Interval)
	}
}
