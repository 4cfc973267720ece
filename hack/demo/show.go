package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/env"
)

const port = 7000

// show is the story: asleep, woken by a player, handed over, upgraded under that
// player, idle, asleep again.
func show(ctx context.Context, e *env.Env, who person) (err error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "dormouse-demo-"}}
	if err := e.Client.Create(ctx, ns); err != nil {
		return fmt.Errorf("create a namespace: %w", err)
	}
	defer func() { err = errors.Join(err, e.Client.Delete(context.WithoutCancel(ctx), ns)) }()
	g := env.Game{Namespace: ns.Name, Name: "lobby", TCP: []int32{port}}
	fmt.Printf("\nA game that nobody plays: GameType %s/%s at zero replicas.\n", ns.Name, g.Name)
	err = e.CreateGameType(ctx, g.Namespace, g.Name, 0, func(s *v1alpha1.GameTypeSpec) {
		s.Sleep = &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: 5 * time.Second}}
	})
	if err != nil {
		return err
	}
	es, err := e.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	if err != nil {
		return err
	}
	if e.Cluster != nil {
		if err := e.WaitRouted(ctx, es, 1); err != nil {
			return err
		}
	}
	resolvers, err := e.ResolverAddrs(ctx)
	if err != nil {
		return err
	}
	address, err := e.ClusterIP(ctx, g.Key(), port, corev1.IPv4Protocol)
	if err != nil {
		return err
	}
	fmt.Printf("It sleeps. A player connects to its Service at %s:\n\n", address)

	story, err := observe(ctx, e, g)
	if err != nil {
		return err
	}
	defer story.end()
	v, leave, err := who.play(ctx, ns.Name, address)
	if err != nil {
		return fmt.Errorf("play: %w", err)
	}
	if !slices.Contains(resolvers, v.from) {
		return fmt.Errorf("the first player came to the server from %s: want one of the resolvers, %v", v.from, resolvers)
	}
	t := timeline{start: v.sent}
	if err := t.wake(ctx, story, v); err != nil {
		return err
	}
	direct, err := handedOver(ctx, who, ns.Name, address, resolvers)
	if err != nil {
		return err
	}
	t.print(direct.replied, "handed over to direct", fmt.Sprintf("a second player came straight from %s; the first plays on", direct.from))
	if err := t.upgrade(ctx, e, g); err != nil {
		return err
	}
	if err := leave(ctx); err != nil {
		return fmt.Errorf("the first player's session: %w", err)
	}
	t.print(time.Now(), "idle", "both players have left; nothing of what the first one sent was lost")
	return t.sleep(ctx, story)
}

// handedOver plays short sessions until one reaches the server past the
// resolver.
func handedOver(ctx context.Context, who person, namespace, address string, resolvers []netip.Addr) (session, error) {
	var v session
	err := env.WaitUntil(ctx, "a new player goes straight to the server", func(ctx context.Context) (bool, error) {
		var leave func(context.Context) error
		var err error
		if v, leave, err = who.play(ctx, namespace, address); err != nil {
			return false, err
		}
		return !slices.Contains(resolvers, v.from), leave(ctx)
	})
	return v, err
}

// timeline prints what happened and how long after the first packet.
type timeline struct{ start time.Time }

func (t timeline) print(at time.Time, what, more string) {
	fmt.Printf("  %9.1f ms  %-22s %s\n", float64(at.Sub(t.start))/float64(time.Millisecond), what, more)
}

// wake prints the steps from the packet to the handover.
func (t timeline) wake(ctx context.Context, s *story, v session) error {
	asked, err := s.wakeAsked.wait(ctx, "the wake call")
	if err != nil {
		return err
	}
	created, err := s.podCreated.wait(ctx, "the pod")
	if err != nil {
		return err
	}
	up, err := s.serverUp.wait(ctx, "the server to be up")
	if err != nil {
		return err
	}
	t.print(t.start, "packet sent", "the resolver stands in for the game and holds it")
	t.print(asked.at, "wake asked", "the resolver called the operator, which scaled the GameType")
	t.print(created.at, "pod created", created.what)
	t.print(up.at, "server up", "its sidecar says that it takes players")
	t.print(v.replied, "first reply", "on the connection that the resolver held")
	return nil
}

// upgrade brings a new version in while the first player plays.
func (t timeline) upgrade(ctx context.Context, e *env.Env, g env.Game) error {
	t.print(time.Now(), "new version", "the GameType's template changes")
	gt := &v1alpha1.GameType{}
	if err := e.Client.Get(ctx, g.Key(), gt); err != nil {
		return fmt.Errorf("read GameType %s: %w", g.Key(), err)
	}
	changed := gt.DeepCopy()
	game := &changed.Spec.Template.Spec.Template.Spec.Containers[0]
	game.Env = append(game.Env, corev1.EnvVar{Name: "VERSION", Value: "2"})
	if err := e.Client.Patch(ctx, changed, client.MergeFrom(gt)); err != nil {
		return fmt.Errorf("change GameType %s: %w", g.Key(), err)
	}
	_, err := env.Wait(ctx, e, &v1alpha1.GameTypeList{}, g.Key(), "upgraded", func(gt *v1alpha1.GameType) bool {
		s := gt.Status
		return s.ObservedGeneration == changed.Generation && s.UpdatedReplicas == 1 && s.Replicas == 1 && s.ReadyReplicas == 1 && s.DrainingReplicas == 1
	})
	if err != nil {
		return err
	}
	t.print(time.Now(), "upgraded", "new players get the new version; the first plays on where they are")
	return nil
}

// sleep prints the steps from idle to asleep.
func (t timeline) sleep(ctx context.Context, s *story) error {
	falling, err := s.fallingAsleep.wait(ctx, "the game to fall asleep")
	if err != nil {
		return err
	}
	t.print(falling.at, "falling asleep", "new players would reach the resolver, and stop it")
	asleep, err := s.asleep.wait(ctx, "the game to be asleep again")
	if err != nil {
		return err
	}
	t.print(asleep.at, "asleep again", asleep.what)
	return nil
}
