// Package upgrade plays while Dormouse is upgraded from an earlier commit to this one, and
// while it is rolled back.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

const (
	// testTime bounds the test, and deployTime a deployment with the building of its images.
	testTime, deployTime = 25 * time.Minute, 6 * time.Minute
	// afterwards is for how long is played after each deployment: resolvers of the earlier
	// one carry their clients for a minute.
	afterwards = 75 * time.Second
	// stay is how long a player stays who goes through the resolver, and shorter than a
	// resolver that ends carries it here.
	stay = 15 * time.Second
	// interval is how often each player says something.
	interval = 50 * time.Millisecond
)

// games are of each kind one over TCP and one over UDP. Each has one player at a time, so
// that it may sleep between two of them. The test game doesn't notice when UDP players
// leave: over UDP it is put to sleep by hand.
func games(namespace string) (games []env.Game) {
	sleepy := env.Game{Namespace: namespace, Probe: true, Trigger: true, SleepAfter: 2 * time.Second}
	selectorless, selecting, never := sleepy, sleepy, sleepy
	selectorless.Name, selectorless.Selectorless, selectorless.PreStop = "selectorless", true, 5*time.Second
	// With a selector somebody may come to a pod that is about to end.
	selecting.Name, selecting.PreStop, selecting.Linger = "selecting", 5*time.Second, stay
	never.Name, never.Handoff, never.Selectorless, never.Trigger = "never", v1alpha1.HandoffNever, true, false
	for _, g := range []env.Game{selectorless, selecting, never} {
		tcp, udp := g, g
		tcp.Name, tcp.TCP = g.Name+"-tcp", []int32{7000}
		udp.Name, udp.UDP, udp.Trigger = g.Name+"-udp", []int32{7000}, false
		games = append(games, tcp, udp)
	}
	return games
}

func TestAnUpgradeAndItsRollbackHurtNobody(t *testing.T) {
	_, namespace := suite.Namespace(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	deploy(ctx, t, "the earlier commit", *before)
	earlier := programs(ctx, t)
	signed := sidecarsSign(ctx, t)

	l := &ledger{}
	visiting, stop := context.WithCancel(ctx)
	defer stop()
	var visitors sync.WaitGroup
	for _, g := range games(namespace) {
		suite.Asleep(ctx, t, g)
		address := suite.ClusterIP(ctx, t, g, 7000)
		visitors.Go(func() { l.comeAndGo(visiting, g, address) })
	}
	old := newArena(ctx, t, namespace, "old")
	old.join(ctx, t)

	began := deploy(ctx, t, "this commit", suite.Cluster.Repo)
	if now := programs(ctx, t); maps.Equal(earlier, now) {
		t.Fatalf("both commits have the same programs, %v: choose another BEFORE", now)
	}
	if !signed {
		haveMountedTokens(ctx, t) // as the guide says for who may want to go back
	}
	playOn(ctx, t, namespace, began)
	old.join(ctx, t) // its sidecar is of the earlier commit, and what it reports arrives
	fresh := newArena(ctx, t, namespace, "fresh")
	fresh.join(ctx, t)

	began = deploy(ctx, t, "the earlier commit again", *before)
	if now := programs(ctx, t); !maps.Equal(earlier, now) {
		t.Fatalf("the programs are %v, want those of before, %v", now, earlier)
	}
	playOn(ctx, t, namespace, began)
	old.join(ctx, t)
	fresh.join(ctx, t)

	began = deploy(ctx, t, "this commit again", suite.Cluster.Repo)
	playOn(ctx, t, namespace, began)
	stop()
	visitors.Wait()
	old.check(ctx, t)
	fresh.check(ctx, t)
	l.check(t)
}

// deploy brings another commit into the cluster, while everybody plays.
func deploy(ctx context.Context, t *testing.T, what, source string) (began time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, deployTime)
	defer cancel()
	began = time.Now()
	if err := suite.Cluster.Deploy(ctx, source, os.Stderr); err != nil {
		t.Fatalf("deploy %s: %v", what, err)
	}
	t.Logf("deployed %s within %s", what, time.Since(began).Round(time.Second))
	return began
}

// programs are the images of Dormouse's programs, by their Deployments' names.
func programs(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	var list appsv1.DeploymentList
	if err := suite.Cluster.Client.List(ctx, &list, client.InNamespace(env.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for i := range list.Items {
		found[list.Items[i].Name] = list.Items[i].Spec.Template.Spec.Containers[0].Image
	}
	return found
}

// sidecarTemplate is the PodTemplate of the sidecar.
func sidecarTemplate() *corev1.PodTemplate {
	return &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: env.SystemNamespace, Name: "dormouse-sidecar"}}
}

// sidecarsSign reports whether new Servers' sidecars sign their reports.
func sidecarsSign(ctx context.Context, t *testing.T) bool {
	t.Helper()
	template := sidecarTemplate()
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(template), template); err != nil {
		t.Fatal(err)
	}
	return template.Template.Annotations[wellknown.ReportCredentialAnnotation] != ""
}

// haveMountedTokens has new Servers' sidecars report as those of earlier versions do, whose
// operators understand nothing else.
func haveMountedTokens(ctx context.Context, t *testing.T) {
	t.Helper()
	patch := []byte(`{"template":{"metadata":{"annotations":{"` + wellknown.ReportCredentialAnnotation + `":null}}}}`)
	if err := suite.Cluster.Client.Patch(ctx, sidecarTemplate(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatalf("take the annotation out of the sidecar's PodTemplate: %v", err)
	}
}

// playOn waits until the resolvers that were there before a deployment have had their time,
// and each game has been woken by a player since it.
func playOn(ctx context.Context, t *testing.T, namespace string, deployed time.Time) {
	t.Helper()
	select {
	case <-time.After(afterwards):
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
	for _, g := range games(namespace) {
		if _, err := suite.Cluster.WaitFor(ctx, g.Key(), "woken since the deployment", func(es *v1alpha1.ElasticService) bool {
			return es.Status.LastWakeTime != nil && es.Status.LastWakeTime.After(deployed)
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// ledger counts those who come and go, and what was lost of their sessions.
type ledger struct {
	mu     sync.Mutex
	visits map[string]int
	failed []error
}

// comeAndGo lets one player after the other come, stay for a while and go, with a pause that
// is about as often too short for a sleep as it is long enough.
func (l *ledger) comeAndGo(ctx context.Context, g env.Game, address string) {
	network := "tcp"
	if len(g.UDP) > 0 {
		network = "udp"
	}
	for ctx.Err() == nil {
		began := time.Now()
		err := playOnce(context.WithoutCancel(ctx), network, address)
		if network == "udp" && rand.IntN(2) == 0 {
			err = errors.Join(err, putToSleep(context.WithoutCancel(ctx), g))
		}
		l.mu.Lock()
		if l.visits == nil {
			l.visits = map[string]int{}
		}
		l.visits[g.Name]++
		if err != nil {
			l.failed = append(l.failed, fmt.Errorf("%s at %s: %w", g.Name, began.Format("15:04:05.000"), err))
		}
		l.mu.Unlock()
		select {
		case <-time.After(time.Duration(rand.IntN(16000)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// putToSleep scales a game's Deployment to zero as a person would, and returns once nobody
// is sent to the pods that were there: who came before that might meet one that is gone.
func putToSleep(ctx context.Context, g env.Game) error {
	ctx, cancel := context.WithTimeout(ctx, suite.TestTimeout)
	defer cancel()
	c := suite.Cluster
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(g.Namespace), client.MatchingLabels{"app": g.Name}); err != nil {
		return err
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name}}
	if err := c.Client.Patch(ctx, d, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"replicas": 0}}`))); err != nil {
		return err
	}
	es, err := c.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	if err == nil {
		err = c.WaitRouted(ctx, es, 1)
	}
	for i := range pods.Items {
		if address := pods.Items[i].Status.PodIP; err == nil && address != "" {
			err = c.WaitUnrouted(ctx, address)
		}
	}
	return err
}

// playOnce is one player's session, from its connection, for which the service may have to
// wake, to its last reply.
func playOnce(ctx context.Context, network, address string) error {
	dial := player.DialTCP
	if network == "udp" {
		dial = player.DialUDP
	}
	p, err := dial(ctx, address, player.Options{Dial: suite.Cluster.DialPlayer})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	waking, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
	defer cancel()
	if _, err := p.Exchange(waking); err != nil {
		return err
	}
	playing, cancel := context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(stay))))
	defer cancel()
	if err := p.Play(playing, interval); err != nil {
		return err
	}
	leaving, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
	defer cancel()
	return errors.Join(p.Drain(leaving), p.Stats().Intact())
}

func (l *ledger) check(t *testing.T) {
	t.Helper()
	all := 0
	for _, n := range l.visits {
		all += n
	}
	if len(l.failed) > 0 {
		t.Errorf("%d of %d sessions lost something: %v", len(l.failed), all, errors.Join(l.failed...))
	}
	t.Logf("%d sessions came and went, %d of them lost something: %v", all, len(l.failed), l.visits)
}

// arena is a GameType that never sleeps, on whose Servers players stay all the time.
type arena struct {
	game    env.Game
	servers map[string]types.UID
	players []*player.Player
	// playing ends when the players are to say nothing more.
	playing context.Context //nolint:containedctx // it is that of goroutines, which check ends
	stop    context.CancelFunc
	group   sync.WaitGroup
	errs    chan error
}

func newArena(ctx context.Context, t *testing.T, namespace, name string) *arena {
	t.Helper()
	a := &arena{game: env.Game{Namespace: namespace, Name: name, TCP: []int32{env.GameTCP}, UDP: []int32{env.GameUDP}}, errs: make(chan error, 100)}
	if err := suite.Cluster.CreateGameType(ctx, namespace, name, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := env.Wait(ctx, suite.Cluster, &v1alpha1.GameTypeList{}, a.game.Key(), "available", func(gt *v1alpha1.GameType) bool {
		return gt.Status.ReadyReplicas == 2 && gt.Status.Phase == v1alpha1.PhaseAwake
	}); err != nil {
		t.Fatal(err)
	}
	es := &v1alpha1.ElasticService{}
	if err := suite.Cluster.Client.Get(ctx, a.game.Key(), es); err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitDirect(ctx, es, 1); err != nil {
		t.Fatal(err)
	}
	a.servers = a.uids(ctx, t)
	a.playing, a.stop = context.WithCancel(ctx)
	t.Cleanup(a.stop)
	return a
}

// join lets a player of each transport come, who stays until the end, and waits until the
// GameType knows of them.
func (a *arena) join(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, p := range []*player.Player{
		suite.DialTCP(ctx, t, suite.ClusterIP(ctx, t, a.game, env.GameTCP)), suite.DialUDP(ctx, t, suite.ClusterIP(ctx, t, a.game, env.GameUDP)),
	} {
		a.players = append(a.players, p)
		a.group.Go(func() { a.errs <- p.Play(a.playing, interval) })
	}
	what := fmt.Sprintf("known to have %d players", len(a.players))
	if _, err := env.Wait(ctx, suite.Cluster, &v1alpha1.GameTypeList{}, a.game.Key(), what, func(gt *v1alpha1.GameType) bool {
		return int(gt.Status.Players) == len(a.players)
	}); err != nil {
		t.Fatal(err)
	}
}

// check fails the test unless each player has played on with one Server, and all Servers
// are those that there were.
func (a *arena) check(ctx context.Context, t *testing.T) {
	t.Helper()
	a.stop()
	a.group.Wait()
	close(a.errs)
	for err := range a.errs {
		if err != nil {
			t.Error(err)
		}
	}
	for _, p := range a.players {
		if err := p.Drain(ctx); err != nil {
			t.Error(err)
		}
		suite.Intact(t, "a player of "+a.game.Name, p)
	}
	if now := a.uids(ctx, t); !maps.Equal(a.servers, now) {
		t.Errorf("the Servers of %s are %v, and were %v", a.game.Name, now, a.servers)
	}
}

// uids are those of the Servers.
func (a *arena) uids(ctx context.Context, t *testing.T) map[string]types.UID {
	t.Helper()
	var list v1alpha1.ServerList
	if err := suite.Cluster.Client.List(ctx, &list, client.InNamespace(a.game.Namespace), client.MatchingLabels{wellknown.GameTypeLabel: a.game.Name}); err != nil {
		t.Fatal(err)
	}
	uids := map[string]types.UID{}
	for i := range list.Items {
		uids[list.Items[i].Name] = list.Items[i].UID
	}
	return uids
}
