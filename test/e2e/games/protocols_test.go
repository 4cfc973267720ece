package games

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameproto/bedrock"
	"dormouse.dev/dormouse/internal/gameproto/minecraft"
	"dormouse.dev/dormouse/internal/gameproto/quake3"
	"dormouse.dev/dormouse/internal/gameproto/source"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/env/node"
)

const (
	// sleepingMOTD is what lists show of the games here while they sleep.
	sleepingMOTD = "Fast asleep"
	// lists is how many server lists ask at once.
	lists = 25
	// refreshes is how often sleeping games are asked.
	refreshes = 1000
)

// refresh asks a server for its status again and again, as server lists do, and fails where an
// answer lacks the sleeping one's message.
func refresh(ctx context.Context, t *testing.T, times int, ask func(ctx context.Context) ([]byte, error)) {
	t.Helper()
	var asked atomic.Int32
	var wg sync.WaitGroup
	for range lists {
		wg.Go(func() {
			for asked.Add(1) <= int32(times) && !t.Failed() {
				one, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
				answer, err := ask(one)
				cancel()
				if err != nil || !bytes.Contains(answer, []byte(sleepingMOTD)) {
					t.Errorf("a list is answered %q, %v", answer, err)
				}
			}
		})
	}
	wg.Wait()
}

// minecraftStatus asks as Minecraft's server list does.
func minecraftStatus(ctx context.Context, address, host string) ([]byte, error) {
	c, err := suite.Cluster.DialPlayer(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	if _, err := c.Write(minecraft.AppendStatusRequest(nil, host, node.MinecraftPort)); err != nil {
		return nil, err
	}
	return minecraft.ReadFrame(c)
}

// stillAsleep fails where a game was woken, or has Servers.
func stillAsleep(ctx context.Context, t *testing.T, g env.Game) {
	t.Helper()
	es := &v1alpha1.ElasticService{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), es); err != nil {
		t.Fatal(err)
	}
	var servers v1alpha1.ServerList
	if err := suite.Cluster.Client.List(ctx, &servers, client.InNamespace(g.Namespace), client.MatchingLabels{wellknown.GameTypeLabel: g.Name}); err != nil {
		t.Fatal(err)
	}
	if es.Status.Phase != v1alpha1.PhaseAsleep || es.Status.LastWakeTime != nil || len(servers.Items) > 0 {
		t.Errorf("%s is %s, was last woken at %v, and has %d Servers", g.Name, es.Status.Phase, es.Status.LastWakeTime, len(servers.Items))
	}
}

// asleepGameType makes a GameType that is at zero, and waits until the resolver stands in for it.
func asleepGameType(ctx context.Context, t *testing.T, g env.Game, spec v1alpha1.GameTypeSpec) {
	t.Helper()
	spec.Replicas = new(int32)
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name}, Spec: spec}
	if err := suite.Cluster.Client.Create(ctx, gt); err != nil {
		t.Fatal(err)
	}
	es, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitRouted(ctx, es, 1); err != nil {
		t.Fatal(err)
	}
}

// A GameType alone says all about a Minecraft server: that its port speaks the game, which name
// leads to it, and who may wake it. Only a listed player's login does; the server is npm's, and so
// are the players.
func TestAGameTypeIsAWholeMinecraft(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	image, modules, err := node.Minecraft(ctx, suite.Cluster, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	front := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mc"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "minecraft", Port: node.MinecraftPort, Protocol: corev1.ProtocolTCP}}},
	}
	if err := suite.Cluster.Client.Create(ctx, front); err != nil {
		t.Fatal(err)
	}
	const host = "survival.example.com"
	g := env.Game{Namespace: ns, Name: "survival"}
	pod := suite.Cluster.ServerSpec().Template
	game := &pod.Spec.Containers[0]
	game.Image, game.Args = image, nil
	asleepGameType(ctx, t, g, v1alpha1.GameTypeSpec{
		Template: v1alpha1.ServerTemplate{Spec: v1alpha1.ServerSpec{Template: pod, Ports: []v1alpha1.ServerPort{
			{Name: "rcon", ContainerPort: 25575, Publish: new(false)},
			{Name: "game", ContainerPort: node.MinecraftPort, Protocol: "minecraft", Asleep: &v1alpha1.Asleep{MOTD: sleepingMOTD}},
		}}},
		Sleep: &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: time.Hour}, Handoff: v1alpha1.HandoffNever},
		Front: &v1alpha1.Front{Service: "mc", Hosts: []v1alpha1.FrontHost{host}},
		Wake:  &v1alpha1.Wake{Players: &v1alpha1.WakePlayers{Allow: []v1alpha1.Player{"Hazel"}, Message: "Ask Hazel to wake it."}},
	})
	awaitFront(ctx, t, g)
	direct := suite.ClusterIP(ctx, t, g, node.MinecraftPort)
	shared, err := suite.Cluster.ClusterIP(ctx, client.ObjectKeyFromObject(front), node.MinecraftPort, corev1.IPv4Protocol)
	if err != nil {
		t.Fatal(err)
	}
	refresh(ctx, t, refreshes/2, func(ctx context.Context) ([]byte, error) { return minecraftStatus(ctx, direct, "10.0.0.1") })
	refresh(ctx, t, refreshes/2, func(ctx context.Context) ([]byte, error) { return minecraftStatus(ctx, shared, host) })
	join := func(name string) node.Joining {
		t.Helper()
		one, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
		defer cancel()
		how, err := node.MinecraftJoin(one, suite.Cluster, modules, shared, host, name)
		if err != nil {
			t.Fatal(err)
		}
		return how
	}
	if how := join("Weasel"); how.Joined || !strings.Contains(how.Reason, "Ask Hazel to wake it.") {
		t.Errorf("who isn't listed gets %+v", how)
	}
	stillAsleep(ctx, t, g)
	if how := join("Hazel"); !how.Joined {
		t.Fatalf("who is listed gets %+v", how)
	}
	gt := waitGameType(ctx, t, g, "available", func(gt *v1alpha1.GameType) bool {
		return settled(gt, 1) && gt.Status.Phase == v1alpha1.PhaseAwake
	})
	// The number comes from the game: the sidecar asks it in the protocol that its port speaks.
	if gt.Status.Capacity != 7 {
		t.Errorf("the game says that %d may play, want 7", gt.Status.Capacity)
	}
	service := &corev1.Service{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), service); err != nil {
		t.Fatal(err)
	}
	if len(service.Spec.Ports) != 1 || service.Spec.Ports[0].Name != "game" {
		t.Errorf("the Service has the ports %+v, want that of the game alone", service.Spec.Ports)
	}

	// Another text is no other version of the game.
	editGameType(ctx, t, g, func(spec *v1alpha1.GameTypeSpec) { spec.Template.Spec.Ports[1].Asleep.MOTD = "Sleeping again" })
	err = env.WaitUntil(ctx, "the ElasticService has the text", func(ctx context.Context) (bool, error) {
		es := &v1alpha1.ElasticService{}
		err := suite.Cluster.Client.Get(ctx, g.Key(), es)
		return err == nil && len(es.Spec.Ports) == 1 && es.Spec.Ports[0].Asleep.MOTD == "Sleeping again", err
	})
	if err != nil {
		t.Fatal(err)
	}
	now := waitGameType(ctx, t, g, "observed", func(gt *v1alpha1.GameType) bool { return gt.Status.ObservedGeneration == gt.Generation })
	if now.Status.UpdateRevision.Name != gt.Status.UpdateRevision.Name || len(now.Status.Revisions) != 1 {
		t.Errorf("the revisions are %+v", now.Status.Revisions)
	}
}

// GameTypes whose ports speak the other games' protocols show their message while they sleep, and
// only who joins wakes them.
func TestAGameTypeAnswersListsInItsOwnProtocol(t *testing.T) {
	t.Parallel()
	// A player of the Bedrock edition asks for a connection with the magic bytes that pings have, too,
	// and as much behind them as a datagram may have.
	request := append([]byte{5}, bedrock.AppendPing(nil, 0, 0)[9:25]...)
	request = append(request, make([]byte, 1200)...)
	tests := map[v1alpha1.ServerProtocol]struct {
		port int32
		// query is what lists send, and join what a player does.
		query func(challenge *source.Challenge) []byte
		join  []byte
	}{
		"bedrock": {19132, func(*source.Challenge) []byte { return bedrock.AppendPing(nil, 1, 2) }, request},
		"source":  {27015, func(c *source.Challenge) []byte { return source.AppendInfoRequest(nil, c) }, []byte("\xff\xff\xff\xffqconnect0x00000000\x00")},
		"quake3":  {27960, func(*source.Challenge) []byte { return quake3.AppendStatusRequest(nil, "1") }, []byte("\xff\xff\xff\xffgetchallenge 1 Quake3Arena")},
	}
	for protocol, test := range tests {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			ctx, ns := suite.Namespace(t)
			g := env.Game{Namespace: ns, Name: string(protocol)}
			spec := suite.Cluster.ServerSpec(fmt.Sprintf("--echo-udp=%d", test.port))
			// What the test game sends back are no answers.
			spec.Players = &v1alpha1.PlayersSpec{Probe: &v1alpha1.PlayersProbe{Type: v1alpha1.ProbeNone}}
			spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: test.port, Protocol: protocol, Asleep: &v1alpha1.Asleep{MOTD: sleepingMOTD}}}
			asleepGameType(ctx, t, g, v1alpha1.GameTypeSpec{Template: v1alpha1.ServerTemplate{Spec: spec}, Sleep: &v1alpha1.SleepSpec{}})
			address := suite.ClusterIP(ctx, t, g, test.port)
			say := func(ctx context.Context, c net.Conn, what []byte) ([]byte, error) {
				deadline, _ := ctx.Deadline()
				_ = c.SetDeadline(deadline)
				if _, err := c.Write(what); err != nil {
					return nil, err
				}
				answer := make([]byte, 2048)
				n, err := c.Read(answer)
				return answer[:n], err
			}
			refresh(ctx, t, refreshes, func(ctx context.Context) ([]byte, error) {
				c, err := suite.Cluster.DialPlayer(ctx, "udp", address)
				if err != nil {
					return nil, err
				}
				defer func() { _ = c.Close() }()
				answer, err := say(ctx, c, test.query(nil))
				if parsed, bad := source.ParseAnswer(answer); protocol == "source" && bad == nil && parsed.Challenge != nil {
					answer, err = say(ctx, c, test.query(parsed.Challenge))
				}
				return answer, err
			})
			stillAsleep(ctx, t, g)
			c, err := suite.Cluster.DialPlayer(ctx, "udp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			play, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
			defer cancel()
			if got, err := say(play, c, test.join); err != nil || !bytes.Equal(got, test.join) {
				t.Errorf("who joins gets %d bytes back, %v, want %d", len(got), err, len(test.join))
			}
		})
	}
}
