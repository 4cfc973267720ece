// Package handover plays over UDP while services change hands, again and again, and
// checks that no session is moved and no datagram lost.
package handover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
)

const (
	// outlasts is longer than a resolver's endpoint stays without clients, and nodes
	// take to hear of it.
	outlasts = 12 * time.Second
	// lag is longer than nodes take to hear of a change of endpoints.
	lag = 3 * time.Second
)

// Players come at any moment of a wake, of a fall asleep and of what follows, by each
// address that a Service has, while Servers with host ports start and end on both
// nodes. Each of them plays to the end with the server that it has from the first.
func TestNoSessionIsMoved(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d", *seed)
	stopAndCount := exposeServers(t)
	var players, messages atomic.Uint64
	t.Run("runs", func(t *testing.T) {
		for i := range *runs {
			kind, play := "wakes", wakes
			if i%2 == 1 {
				kind, play = "falls asleep", fallsAsleep
			}
			t.Run(fmt.Sprintf("%d %s", i, kind), func(t *testing.T) {
				t.Parallel()
				g := newGame(t, rand.New(rand.NewPCG(*seed, uint64(i))))
				play(g)
				players.Add(uint64(len(g.players)))
				messages.Add(g.leave())
			})
		}
	})
	t.Logf("%d handovers, %d players, %d messages; %d Servers with host ports started meanwhile", *runs, players.Load(), messages.Load(), stopAndCount())
}

// wakes is a service that players wake, that gets more Servers, and whose Servers
// drain.
func wakes(g *game) {
	g.create(0, time.Minute)
	es := g.phase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	g.must(suite.Cluster.WaitRouted(g.ctx, es, families))
	g.come(500 * time.Millisecond)
	g.phase(v1alpha1.PhaseAwake, v1alpha1.ModeServe)
	served := time.Now()
	g.come(lag)
	suite.ScaleFleet(g.ctx, g.t, g.Key(), 3)
	g.ready(3)
	g.come(lag)
	suite.ScaleFleet(g.ctx, g.t, g.Key(), 1)
	g.come(lag)
	g.wait(outlasts - time.Since(served))
}

// fallsAsleep is a service whose players have left, and to which others come while it
// falls asleep, or once it sleeps.
func fallsAsleep(g *game) {
	const replicas = 2
	g.create(replicas, lag)
	g.ready(replicas)
	es := g.phase(v1alpha1.PhaseAwake, v1alpha1.ModeServe)
	g.must(suite.Cluster.WaitDirect(g.ctx, es, families))
	g.come(time.Second)
	g.leave()
	g.phase(v1alpha1.PhaseFallingAsleep, v1alpha1.ModeProxy)
	// It takes five seconds, and its Servers' end a few more.
	g.wait(g.upTo(9 * time.Second))
	g.come(time.Second)
	g.phase(v1alpha1.PhaseAwake, v1alpha1.ModeServe)
	served := time.Now()
	g.come(lag)
	suite.ScaleFleet(g.ctx, g.t, g.Key(), replicas+1)
	g.wait(outlasts - time.Since(served))
}

// exposeServers lets Servers with host ports come and go on both nodes, until the
// function that it gives is called, which tells how many there were.
func exposeServers(t *testing.T) (stopAndCount func() int) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	count, done := 0, make(chan struct{})
	_, namespace := suite.Namespace(t)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			n, err := exposeOnce(ctx, namespace)
			count += n
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	}()
	return func() int {
		stop()
		<-done
		return count
	}
}

// exposeOnce starts two Servers with host ports on each node, and ends them. Of the
// local cluster's three numbers one is the games' UDP port.
func exposeOnce(ctx context.Context, namespace string) (started int, err error) {
	var servers []*v1alpha1.Server
	for node := 1; node <= suite.Cluster.Cluster.Nodes; node++ {
		for i := range 2 {
			s, err := suite.Cluster.CreateServer(ctx, namespace, fmt.Sprintf("exposed-%d-%d", node, i), exposed(node))
			if err != nil {
				return started, err
			}
			servers = append(servers, s)
		}
	}
	for _, s := range servers {
		if _, err := suite.Cluster.WaitState(ctx, client.ObjectKeyFromObject(s), v1alpha1.ServerReady); err != nil {
			return started, err
		}
		started++
	}
	for _, s := range servers {
		if err := suite.Cluster.Client.Delete(ctx, s); err != nil {
			return started, fmt.Errorf("delete Server %s: %w", s.Name, err)
		}
	}
	for _, s := range servers {
		if err := suite.Cluster.WaitGone(ctx, s); err != nil {
			return started, err
		}
	}
	return started, nil
}
