package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"dormouse.dev/dormouse/test/bench/proxy/traffic"
)

const (
	// stillFor is for how long a proxy's memory must not have changed, and settleTime
	// how long that is waited for.
	stillFor   = 300 * time.Millisecond
	settleTime = 3 * time.Second
)

// settled is a proxy's memory once it doesn't change any more, or soon after.
func (b *bench) settled(ctx context.Context, of *process) (float64, error) {
	last, err := of.memory()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	since := began
	for time.Since(since) < stillFor && time.Since(began) < settleTime {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(stillFor / 10):
		}
		now, err := of.memory()
		if err != nil {
			return 0, err
		}
		if now != last {
			last, since = now, time.Now()
		}
	}
	return last, nil
}

// grown is by how much a proxy's memory is more with more ports or clients, each.
func (b *bench) grown(ctx context.Context, p proxy, few, many []relay, clients ...traffic.Job) (each float64, err error) {
	memory := func(relays []relay, clients ...traffic.Job) (_ float64, err error) {
		of, err := p.start(ctx, b.options, b.dir, relays)
		if of != nil {
			defer func() { err = errors.Join(err, of.stop()) }()
		}
		if err != nil {
			return 0, err
		}
		l, err := b.start(ctx, clients...)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, l.stop()) }()
		return b.settled(ctx, of)
	}
	before, err := memory(few)
	if err != nil {
		return 0, err
	}
	after, err := memory(many, clients...)
	more := len(many) - len(few)
	for _, j := range clients {
		more += j.Count
	}
	return per(after-before, float64(more)), err
}

// each takes a measure of memory of each proxy, each round.
func (b *bench) each(udp bool, unit string, one func(proxy) (float64, error)) error {
	for range b.rounds {
		for _, p := range proxies {
			if p.start == nil || !p.serves(udp) || !slices.Contains(b.proxies, p.name) {
				continue
			}
			value, err := one(p)
			if err != nil {
				return err
			}
			b.note(p.name, figures{unit: value})
		}
	}
	return nil
}

func measurePorts(ctx context.Context, b *bench) error {
	for _, network := range []string{"tcp", "udp"} {
		err := b.each(network == "udp", "idle_"+network+"_port_bytes", func(p proxy) (float64, error) {
			return b.grown(ctx, p, idle(network, 1), idle(network, b.ports))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func measureConnections(ctx context.Context, b *bench) error {
	return b.each(false, "relayed_connection_bytes", func(p proxy) (float64, error) {
		return b.grown(ctx, p, p.relays(), p.relays(), traffic.Job{Kind: "idle", Port: p.base + traffic.EchoPort, Count: b.held})
	})
}

func measureSessions(ctx context.Context, b *bench) error {
	return b.each(true, "udp_session_bytes", func(p proxy) (float64, error) {
		return b.grown(ctx, p, p.relays(), p.relays(), traffic.Job{Kind: "udp", Port: p.base + traffic.UDPPort, Count: b.held})
	})
}
