package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

const (
	// asleepWithin is how long a service may take to sleep after its last
	// player. A UDP session at a resolver counts for two minutes of silence.
	asleepWithin = 4 * time.Minute
	// awakeWithin is how long its last players may wait for their first reply.
	awakeWithin = time.Minute
)

// rest waits until every game sleeps, and wakes it once more. A game that does
// not is stuck.
func (r *run) rest(ctx context.Context, report *Report) {
	r.printf("everybody has left: every service must fall asleep, and wake once more")
	var group sync.WaitGroup
	stuck := make([]error, len(r.games))
	for i, g := range r.games {
		group.Go(func() { stuck[i] = r.restOne(ctx, g, r.hosts[i]) })
	}
	group.Wait()
	for i, err := range stuck {
		if err != nil {
			report.Stuck = append(report.Stuck, fmt.Sprintf("%s: %v", r.games[i].Name, err))
		}
	}
}

func (r *run) restOne(ctx context.Context, g env.Game, host string) error {
	falling, cancel := context.WithTimeout(ctx, asleepWithin)
	defer cancel()
	if err := r.asleep(falling, g); err != nil {
		return fmt.Errorf("did not fall asleep: %w", err)
	}
	var group sync.WaitGroup
	errs := make([]error, 2)
	group.Go(func() { errs[0] = r.lastPlayer(ctx, player.DialTCP, host, g.TCP) })
	group.Go(func() { errs[1] = r.lastPlayer(ctx, player.DialUDP, host, g.UDP) })
	group.Wait()
	return errors.Join(errs...)
}

// lastPlayer exchanges one message.
func (r *run) lastPlayer(ctx context.Context, open func(context.Context, string, player.Options) (*player.Player, error), host string, ports []int32) error {
	if len(ports) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, awakeWithin)
	defer cancel()
	p, err := open(ctx, net.JoinHostPort(host, strconv.Itoa(int(ports[0]))), player.Options{Dial: r.dialPlayer(new(string))})
	if err != nil {
		return fmt.Errorf("did not wake: %w", err)
	}
	defer p.Close()
	if _, err := p.Exchange(ctx); err != nil {
		return fmt.Errorf("did not wake: %w", err)
	}
	return p.Stats().Intact()
}
