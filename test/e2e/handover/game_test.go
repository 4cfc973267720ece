package handover

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

const (
	// port is one of the local cluster's host ports.
	port     = 7901
	families = 2
	// interval is the time between two of a player's messages.
	interval = 50 * time.Millisecond
	// drainTime is how long the last replies may take.
	drainTime = 10 * time.Second
)

// game is a Fleet behind a dual-stack node port Service, and those who play there.
type game struct {
	env.Game
	t       *testing.T
	ctx     context.Context
	chance  *rand.Rand
	players []*gamePlayer
	// left is how many of them have left.
	left int
}

// gamePlayer is a player who plays until it is told to stop.
type gamePlayer struct {
	*player.Player
	address string
	stop    context.CancelFunc
	played  chan error
}

func newGame(t *testing.T, chance *rand.Rand) *game {
	t.Helper()
	ctx, namespace := suite.Namespace(t)
	return &game{t: t, ctx: ctx, chance: chance, Game: env.Game{
		Namespace: namespace, Name: "lobby", UDP: []int32{port}, Selectorless: true, IdlePlayers: true,
		Type: corev1.ServiceTypeNodePort, Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
		Target: &v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fleet", Name: "lobby"},
	}}
}

// create makes the game's objects.
func (g *game) create(replicas int32, sleepAfter time.Duration) {
	g.t.Helper()
	g.SleepAfter = sleepAfter
	spec := suite.Cluster.ServerSpec("--udp=" + strconv.Itoa(port))
	spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: port, Protocol: v1alpha1.ServerProtocolUDP}}
	_, err := suite.Cluster.CreateFleet(g.ctx, g.Namespace, g.Name, replicas, spec)
	g.must(err)
	g.must(suite.Cluster.Create(g.ctx, g.Game))
}

// exposed is a Server with a host port on a node.
func exposed(node int) v1alpha1.ServerSpec {
	spec := suite.Cluster.ServerSpec()
	spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: env.GameUDP, Protocol: v1alpha1.ServerProtocolUDP, Expose: v1alpha1.ExposeHostPort}}
	spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: suite.Cluster.Cluster.NodeName(node)}
	spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	return spec
}

func (g *game) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *game) phase(phase v1alpha1.Phase, mode v1alpha1.Mode) *v1alpha1.ElasticService {
	g.t.Helper()
	es, err := suite.Cluster.WaitPhase(g.ctx, g.Key(), phase, mode)
	g.must(err)
	return es
}

func (g *game) ready(n int32) {
	g.t.Helper()
	_, err := suite.Cluster.WaitFleet(g.ctx, g.Key(), "ready", func(f *v1alpha1.Fleet) bool { return f.Status.ReadyReplicas == n })
	g.must(err)
}

// upTo is any time up to d.
func (g *game) upTo(d time.Duration) time.Duration { return time.Duration(g.chance.Int64N(int64(d))) }

func (g *game) wait(d time.Duration) {
	select {
	case <-g.ctx.Done():
	case <-time.After(d):
	}
}

// addresses are all that players can send to.
func (g *game) addresses() (all []string) {
	g.t.Helper()
	svc := &corev1.Service{}
	g.must(suite.Cluster.Client.Get(g.ctx, g.Key(), svc))
	for _, ip := range svc.Spec.ClusterIPs {
		all = append(all, net.JoinHostPort(ip, strconv.Itoa(port)))
	}
	for node := 1; node <= suite.Cluster.Cluster.Nodes; node++ {
		for _, ip := range suite.Cluster.Cluster.NodeAddrs(node) {
			all = append(all, netip.AddrPortFrom(ip, uint16(svc.Spec.Ports[0].NodePort)).String())
		}
	}
	return all
}

// come lets a player come by each address, each at some moment of the time, and
// returns when the last one has.
func (g *game) come(within time.Duration) {
	g.t.Helper()
	var all sync.WaitGroup
	for _, address := range g.addresses() {
		ctx, stop := context.WithCancel(g.ctx)
		one := &gamePlayer{Player: suite.DialUDP(g.ctx, g.t, address), address: address, stop: stop, played: make(chan error, 1)}
		g.players = append(g.players, one)
		delay := g.upTo(within)
		all.Go(func() {
			g.wait(delay)
			go func() { one.played <- one.Play(ctx, interval) }()
		})
	}
	all.Wait()
}

// leave ends the game of all who are there, checks that nothing of it was lost, and
// tells how much they said in all.
func (g *game) leave() (messages uint64) {
	g.t.Helper()
	for _, one := range g.players[g.left:] {
		one.stop()
	}
	for _, one := range g.players[g.left:] {
		if err := <-one.played; err != nil {
			g.t.Errorf("%s: %v", one.address, err)
		}
		ctx, cancel := context.WithTimeout(g.ctx, drainTime)
		_ = one.Drain(ctx) // what is missing is told below
		cancel()
		if stats := one.Stats(); stats.Intact() != nil {
			g.t.Errorf("the player at %s who came at %s, was first answered at %s by %v and left at %s: %v",
				one.address, clock(stats.Dialed), clock(stats.FirstReply), stats.Paths, clock(time.Now()), stats.Intact())
		}
		if err := one.Close(); err != nil {
			g.t.Error(err)
		}
	}
	g.left = len(g.players)
	for _, one := range g.players {
		messages += one.Stats().Sent
	}
	return messages
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }
