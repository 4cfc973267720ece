package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

// session is what a player saw.
type session struct {
	sent, replied time.Time
	// from is where the server saw the player come from.
	from netip.Addr
}

// person plays.
type person interface {
	// play sends a message to an address, waits for the reply, and stays until
	// leave is called.
	play(ctx context.Context, namespace, address string) (v session, leave func(context.Context) error, err error)
}

// neighbour plays from the network namespace of the local cluster's player.
type neighbour struct{ env *env.Env }

func (n *neighbour) play(ctx context.Context, _, address string) (session, func(context.Context) error, error) {
	p, err := player.DialTCP(ctx, address, player.Options{Dial: n.env.DialPlayer})
	if err != nil {
		return session{}, nil, err
	}
	if _, err := p.Exchange(ctx); err != nil {
		return session{}, nil, errors.Join(err, p.Close())
	}
	stats := p.Stats()
	v := session{sent: stats.Dialed, replied: stats.FirstReply, from: stats.Paths[0].PeerIP()}
	playing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.Play(playing, 100*time.Millisecond) }()
	return v, func(ctx context.Context) error {
		stop()
		return errors.Join(<-ended, p.Drain(ctx), p.Stats().Intact(), p.Close())
	}, nil
}

// podPlayer plays from a pod, by the test server's own image.
type podPlayer struct{ env *env.Env }

func (g *podPlayer) play(ctx context.Context, namespace, address string) (session, func(context.Context) error, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "player-"},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			AutomountServiceAccountToken:  new(false),
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers:                    []corev1.Container{{Name: "player", Image: g.env.TestServer, Args: []string{"play", address}}},
		},
	}
	if err := g.env.Client.Create(ctx, pod); err != nil {
		return session{}, nil, fmt.Errorf("create a player's pod: %w", err)
	}
	leave := func(ctx context.Context) error {
		if err := g.env.Client.Delete(ctx, pod); err != nil {
			return fmt.Errorf("delete the player's pod %s: %w", pod.Name, err)
		}
		return nil
	}
	v, err := g.follow(ctx, pod)
	if err != nil {
		return session{}, nil, errors.Join(err, leave(context.WithoutCancel(ctx)))
	}
	return v, leave, nil
}

// follow reads what the player prints up to its first reply.
func (g *podPlayer) follow(ctx context.Context, pod *corev1.Pod) (session, error) {
	set, err := kubernetes.NewForConfig(g.env.Config)
	if err != nil {
		return session{}, fmt.Errorf("connect to %s: %w", g.env.Config.Host, err)
	}
	err = env.WaitUntil(ctx, "the player's pod runs", func(ctx context.Context) (bool, error) {
		p, err := set.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("read pod %s: %w", pod.Name, err)
		}
		return p.Status.Phase != corev1.PodPending, nil
	})
	if err != nil {
		return session{}, err
	}
	stream, err := set.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return session{}, fmt.Errorf("follow pod %s: %w", pod.Name, err)
	}
	defer func() { _ = stream.Close() }()
	var v session
	for lines := bufio.NewScanner(stream); lines.Scan(); {
		var line printed
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return session{}, fmt.Errorf("pod %s printed %q: %w", pod.Name, lines.Text(), err)
		}
		switch line.Event {
		case "sent":
			v.sent = line.At
		case "reply":
			peer, err := netip.ParseAddrPort(line.Peer)
			if err != nil {
				return session{}, fmt.Errorf("pod %s printed %q: %w", pod.Name, lines.Text(), err)
			}
			v.replied, v.from = line.At, peer.Addr().Unmap()
			return v, nil
		}
	}
	return session{}, fmt.Errorf("pod %s ended without a reply", pod.Name)
}

// printed is a line of "gameserver play".
type printed struct {
	Event string    `json:"event"`
	At    time.Time `json:"at"`
	Peer  string    `json:"peer"`
}
