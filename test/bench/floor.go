package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

// floorDial is how often the floor's Pod is dialled.
const floorDial = 2 * time.Millisecond

// floorOnce makes a bare Pod with a GameType's game, and dials the address that a watch shows of it
// until it answers: no wake can be faster. A pair has a second container after the game.
func floorOnce(ctx context.Context, e *env.Env, namespace string, pair bool) (stages, error) {
	ctx, cancel := context.WithTimeout(ctx, oneWake)
	defer cancel()
	template := e.ServerSpec().Template
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "floor"}, Spec: template.Spec}
	pod.Spec.AutomountServiceAccountToken = new(false) // a volume takes kubelet 300 ms
	if pair {
		beside := *pod.Spec.Containers[0].DeepCopy()
		beside.Name, beside.Args = "beside", []string{"--http=:9000"}
		pod.Spec.Containers = append(pod.Spec.Containers, beside)
	}
	var address string
	addressed, err := first(ctx, e, sleeper{Game: env.Game{Namespace: namespace}}, &corev1.PodList{}, func(event watch.Event) (time.Time, bool) {
		if now, ok := event.Object.(*corev1.Pod); ok && now.Name == pod.Name {
			address = now.Status.PodIP
		}
		return time.Now(), address != ""
	})
	if err != nil {
		return stages{}, err
	}
	began := time.Now()
	if err := e.Client.Create(ctx, pod); err != nil {
		return stages{}, fmt.Errorf("create a Pod: %w", err)
	}
	created := time.Now()
	if _, err := within(ctx, addressed); err != nil {
		return stages{}, fmt.Errorf("wait for the bare Pod's address: %w", err)
	}
	p, err := dialOften(ctx, net.JoinHostPort(address, strconv.Itoa(env.GameTCP)))
	if err != nil {
		return stages{}, err
	}
	defer func() { _ = p.Close() }()
	reply, err := p.Exchange(ctx)
	if err != nil {
		return stages{}, err
	}
	stats := p.Stats()
	if err := e.Client.Delete(ctx, pod, &client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}); err != nil {
		return stages{}, fmt.Errorf("delete a Pod: %w", err)
	}
	err = env.WaitUntil(ctx, "the bare Pod is gone", func(ctx context.Context) (bool, error) {
		err := e.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return client.IgnoreNotFound(err) == nil && err != nil, client.IgnoreNotFound(err)
	})
	return stages{
		callToPod:       created.Sub(began),
		podToListening:  time.Unix(0, reply.Listening).Sub(created),
		listeningToByte: stats.ListeningToFirstByte(),
		total:           stats.FirstReply.Sub(began),
	}, err
}

// dialOften dials a Pod's address until it answers, from the host: players have no route to Pods.
func dialOften(ctx context.Context, address string) (*player.Player, error) {
	ticker := time.NewTicker(floorDial)
	defer ticker.Stop()
	for {
		p, err := player.DialTCP(ctx, address, player.Options{})
		if err == nil {
			return p, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}
