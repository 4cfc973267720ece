package suite

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

// ClusterIP is the address of a game's port inside the cluster.
func ClusterIP(ctx context.Context, t *testing.T, g env.Game, port int32) string {
	t.Helper()
	address, err := Cluster.ClusterIP(ctx, g.Key(), port, corev1.IPv4Protocol)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// NodePort is the address of a game's port on a node.
func NodePort(ctx context.Context, t *testing.T, g env.Game, port int32, node int) string {
	t.Helper()
	address, err := Cluster.NodePort(ctx, g.Key(), port, node)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// DialTCP opens a player's connection, which ends with the test.
func DialTCP(ctx context.Context, t *testing.T, address string) *player.Player {
	t.Helper()
	p, err := player.DialTCP(ctx, address, player.Options{Dial: Cluster.DialPlayer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// DialUDP opens a player's socket, which ends with the test.
func DialUDP(ctx context.Context, t *testing.T, address string) *player.Player {
	t.Helper()
	p, err := player.DialUDP(ctx, address, player.Options{Dial: Cluster.DialPlayer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// PlayOnce exchanges one message and leaves.
func PlayOnce(ctx context.Context, network, address string) (player.Stats, error) {
	dial := player.DialTCP
	if network == "udp" {
		dial = player.DialUDP
	}
	p, err := dial(ctx, address, player.Options{Dial: Cluster.DialPlayer})
	if err != nil {
		return player.Stats{}, err
	}
	_, err = p.Exchange(ctx)
	return p.Stats(), errors.Join(err, p.Close())
}

// Intact fails the test unless nothing of a player's session was lost, changed,
// or moved.
func Intact(t *testing.T, who string, p *player.Player) {
	t.Helper()
	if err := p.Stats().Intact(); err != nil {
		t.Errorf("%s: %v", who, err)
	}
}

// inARow is how many clients must reach the server directly, one after the other,
// to tell that none is sent to the resolver any more: while a node takes the
// change in, it sends them to either.
const inARow = 12

// WaitDirect waits until new clients of both transports reach a game's server
// past the resolver.
func WaitDirect(ctx context.Context, g env.Game, resolvers []netip.Addr) error {
	ports := map[string][]int32{"tcp": g.TCP, "udp": g.UDP}
	for network, list := range ports {
		if len(list) == 0 {
			continue
		}
		address, err := Cluster.ClusterIP(ctx, g.Key(), list[0], corev1.IPv4Protocol)
		if err != nil {
			return err
		}
		err = env.WaitUntil(ctx, "new "+network+" clients reach the server", func(ctx context.Context) (bool, error) {
			for range inARow {
				stats, err := PlayOnce(ctx, network, address)
				if err != nil || stats.Paths[0].Through(resolvers...) {
					return false, err
				}
			}
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
