package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

// floorDial is how often the floor's Pod is dialled.
const floorDial = 2 * time.Millisecond

// floorOnce makes a bare Pod with a GameType's game, and dials the address that a watch shows of it
// until it answers: no wake can be faster.
func floorOnce(ctx context.Context, e *env.Env, namespace string) (stages, error) {
	ctx, cancel := context.WithTimeout(ctx, oneWake)
	defer cancel()
	template := e.ServerSpec().Template
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "floor"}, Spec: template.Spec}
	pod.Spec.AutomountServiceAccountToken = new(false) // a volume takes kubelet 300 ms
	began := time.Now()
	if err := e.Client.Create(ctx, pod); err != nil {
		return stages{}, fmt.Errorf("create a Pod: %w", err)
	}
	created := time.Now()
	address, err := addressOf(ctx, e, pod)
	if err != nil {
		return stages{}, err
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

// addressOf is a Pod's address once it has one.
func addressOf(ctx context.Context, e *env.Env, pod *corev1.Pod) (string, error) {
	events, err := e.Client.Watch(ctx, &corev1.PodList{}, &client.ListOptions{
		Namespace: pod.Namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", pod.Name),
		Raw: &metav1.ListOptions{ResourceVersion: pod.ResourceVersion},
	})
	if err != nil {
		return "", fmt.Errorf("watch a Pod: %w", err)
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if now, ok := event.Object.(*corev1.Pod); ok && now.Status.PodIP != "" {
			return now.Status.PodIP, nil
		}
	}
	return "", fmt.Errorf("the bare Pod has no address: %w", context.Cause(ctx))
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
