package main

import (
	"context"
	"errors"
	"time"

	"dormouse.dev/dormouse/test/bench/proxy/traffic"
)

// measure is something that can be measured by its name.
type measure struct {
	name, help string
	run        func(context.Context, *bench) error
}

// Assigned in init: parsing the flags, which measures are told to, lists them.
var measures []measure

func init() {
	measures = []measure{
		{"bulk", "TCP in bulk", measureBulk},
		{"ping", "ping-pong", measurePings},
		{"paced", "paced ping-pong", measurePacedPings},
		{"setup", "connection setups", measureSetups},
		{"udp", "UDP echoes", measureEchoes},
		{"udp-paced", "paced UDP echoes", measurePacedEchoes},
		{"ports", "the memory of idle ports", measurePorts},
		{"held", "the memory of connections", measureConnections},
		{"sessions", "the memory of UDP sessions", measureSessions},
		{"fan-in", "the replay of held connections", measureFanIn},
	}
}

func find(name string) (measure, bool) {
	for _, m := range measures {
		if m.name == name {
			return m, true
		}
	}
	return measure{}, false
}

// perHundredThousand is what processor time is told for.
const perHundredThousand = 100_000

// used are the figures of processor time; none of no proxy.
func used(f figures, unit string, of *process, cores, units float64) figures {
	if of != nil && units > 0 {
		f[unit] = per(cores, units)
	}
	return f
}

// bulkConnections is how many there are in each direction.
const bulkConnections = 2

func measureBulk(ctx context.Context, b *bench) error {
	return b.interleave(ctx, false, func(p proxy, of *process) (figures, error) {
		down := traffic.Job{Kind: "download", Port: p.base + traffic.SourcePort, Count: bulkConnections, Duration: b.duration}
		up := traffic.Job{Kind: "upload", Port: p.base + traffic.SinkPort, Count: bulkConnections, Duration: b.duration}
		sum, cores, err := b.once(ctx, of, down, up)
		bytes := float64(sum.Done)
		return used(figures{"bulk_tcp_bytes_per_second": per(bytes, sum.Seconds)},
			"bulk_tcp_cpu_seconds_per_gb", of, cores, bytes/1e9), err
	})
}

func measurePings(ctx context.Context, b *bench) error {
	return b.interleave(ctx, false, func(p proxy, of *process) (figures, error) {
		sum, cores, err := b.once(ctx, of, traffic.Job{Kind: "ping", Port: p.base + traffic.EchoPort, Count: b.connections, Duration: b.duration})
		return used(figures{
			"ping_pongs_per_second":      per(float64(sum.Done), sum.Seconds),
			"ping_pong_p50_microseconds": microseconds(sum.Took.Rank(0.5)),
			"ping_pong_p99_microseconds": microseconds(sum.Took.Rank(0.99)),
		}, "ping_pong_cpu_seconds_per_100k", of, cores, float64(sum.Done)/perHundredThousand), err
	})
}

func measurePacedPings(ctx context.Context, b *bench) error {
	return b.interleave(ctx, false, func(p proxy, of *process) (figures, error) {
		sum, cores, err := b.once(ctx, of, traffic.Job{Kind: "ping", Port: p.base + traffic.EchoPort, Count: b.connections, Rate: b.rate, Duration: b.duration})
		return used(figures{
			"paced_ping_pong_p50_microseconds": microseconds(sum.Took.Rank(0.5)),
			"paced_ping_pong_p99_microseconds": microseconds(sum.Took.Rank(0.99)),
		}, "paced_ping_pong_cpu_seconds_per_100k", of, cores, float64(sum.Done)/perHundredThousand), err
	})
}

// setupConnections is how many are set up at once.
const setupConnections = 64

func measureSetups(ctx context.Context, b *bench) error {
	return b.interleave(ctx, false, func(p proxy, of *process) (figures, error) {
		sum, cores, err := b.once(ctx, of, traffic.Job{Kind: "setup", Port: p.base + traffic.EchoPort, Count: setupConnections, Duration: b.duration})
		return used(figures{
			"connection_setups_per_second": per(float64(sum.Done), sum.Seconds),
			"connection_setups_failed":     float64(sum.Lost),
		}, "connection_setup_cpu_seconds_per_100k", of, cores, float64(sum.Done)/perHundredThousand), err
	})
}

func measureEchoes(ctx context.Context, b *bench) error {
	return b.interleave(ctx, true, func(p proxy, of *process) (figures, error) {
		sum, cores, err := b.once(ctx, of, traffic.Job{Kind: "udp", Port: p.base + traffic.UDPPort, Count: b.flows, Duration: b.duration})
		done, lost := float64(sum.Done), float64(sum.Lost)
		return used(figures{
			"udp_echoes_per_second": per(done, sum.Seconds),
			"udp_lost_percent":      100 * per(lost, done+lost),
		}, "udp_cpu_seconds_per_100k", of, cores, done/perHundredThousand), err
	})
}

func measurePacedEchoes(ctx context.Context, b *bench) error {
	return b.interleave(ctx, true, func(p proxy, of *process) (figures, error) {
		sum, cores, err := b.once(ctx, of, traffic.Job{Kind: "udp", Port: p.base + traffic.UDPPort, Count: b.flows, Rate: b.udpRate, Duration: b.duration})
		done, lost := float64(sum.Done), float64(sum.Lost)
		return used(figures{"udp_paced_lost_percent": 100 * per(lost, done+lost)},
			"udp_paced_cpu_seconds_per_100k", of, cores, done/perHundredThousand), err
	})
}

// measureFanIn holds connections of a sleeping service, wakes it, and waits until
// each has its own echo. Only the resolver can.
func measureFanIn(ctx context.Context, b *bench) error {
	resolver := proxies[0]
	for range b.rounds {
		f, err := b.fanIn(ctx, resolver)
		if err != nil {
			return err
		}
		b.note(resolver.name, f)
	}
	return nil
}

func (b *bench) fanIn(ctx context.Context, p proxy) (f figures, err error) {
	sleepy := relay{network: "tcp", listen: p.base + sleepyPort}
	of, err := p.start(ctx, b.options, b.dir, []relay{sleepy})
	if of != nil {
		defer func() { err = errors.Join(err, of.stop()) }()
	}
	if err != nil {
		return nil, err
	}
	empty, err := of.memory()
	if err != nil {
		return nil, err
	}
	l, err := b.start(ctx, traffic.Job{Kind: "hold", Port: sleepy.listen, Count: b.held})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.stop()) }()
	full, err := b.settled(ctx, of)
	if err != nil {
		return nil, err
	}
	before, err := of.processor()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	sleepy.server = traffic.ServerBase + traffic.EchoPort
	if err := route(of, sleepy, 1); err != nil {
		return nil, err
	}
	sum, _, err := l.play(nil)
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := of.processor()
	return figures{
		"held_connection_bytes":        per(full-empty, float64(b.held)),
		"wake_fan_in_seconds":          took.Seconds(),
		"wake_fan_in_lost_connections": float64(sum.Lost),
		"wake_fan_in_cpu_seconds":      after - before,
	}, err
}
