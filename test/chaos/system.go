package chaos

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/dev/devcluster"
	"dormouse.dev/dormouse/test/env"
)

const (
	// callTime bounds a call to an API server that may be paused.
	callTime = 3 * time.Second
	// wholeWithin bounds how long the cluster may take to be whole again. A
	// container that is killed again and again waits longer each time.
	wholeWithin = 2 * time.Minute
	// patience is how often kubelet starts a container before the wait between
	// two starts gets too long for a run.
	patience = 2
)

// pods are a program's pods that are up and not about to end, the one of node 1
// first.
func (r *run) pods(ctx context.Context, program string) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	pods, err := r.env.ReadyPods(ctx, program)
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Spec.NodeName, b.Spec.NodeName), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	return pods, err
}

// whole says what is missing of the cluster and of Dormouse, or nil.
func (r *run) whole(ctx context.Context) error {
	calls, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var nodes corev1.NodeList
	if err := r.env.Client.List(calls, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes.Items {
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			return fmt.Errorf("node %s is not ready", n.Name)
		}
	}
	leader, err := r.env.Leader(calls)
	if err != nil {
		return err
	}
	for _, program := range []string{env.Operator, env.Resolver} {
		pods, err := r.pods(ctx, program)
		if err != nil {
			return err
		}
		if len(pods) < 2 {
			return fmt.Errorf("%d pods of %s are ready, want 2", len(pods), program)
		}
		if program == env.Operator && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Name == leader.Name }) {
			return fmt.Errorf("operator %s leads and is not ready", leader.Name)
		}
	}
	return nil
}

// waitWhole waits until nothing is missing.
func (r *run) waitWhole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, wholeWithin)
	defer cancel()
	defer r.missing.Store(nil)
	return env.WaitUntil(ctx, "the cluster is whole", func(ctx context.Context) (bool, error) {
		err := r.whole(ctx)
		r.missing.Store(&err)
		return err == nil, err
	})
}

// waitLed waits until an operator has renewed the lease after a time.
func (r *run) waitLed(ctx context.Context, after time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, wholeWithin)
	defer cancel()
	return env.WaitUntil(ctx, "an operator leads again", func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		renewed, err := r.env.LeaseRenewed(ctx)
		return err == nil && renewed.After(after), err
	})
}

// waitRestarted waits until a pod runs another container than the one that was
// killed, and is ready.
func (r *run) waitRestarted(ctx context.Context, killed corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, wholeWithin)
	defer cancel()
	return env.WaitUntil(ctx, killed.Name+" has restarted", func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		p := &corev1.Pod{}
		if err := r.env.Client.Get(ctx, client.ObjectKeyFromObject(&killed), p); err != nil {
			return false, err
		}
		up := slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Ready })
		return up && env.ContainerID(*p) != env.ContainerID(killed), nil
	})
}

// replace deletes a pod and waits until another is there instead.
func (r *run) replace(ctx context.Context, pod corev1.Pod) error {
	if err := r.env.Client.Delete(ctx, &pod); err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return r.waitWhole(ctx)
}

func restarts(p corev1.Pod) int32 {
	if len(p.Status.ContainerStatuses) == 0 {
		return 0
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// nodeOf is the number of the node that an address's pod is on, or 0.
func nodeOf(c *devcluster.Cluster) func(netip.Addr) int {
	return func(addr netip.Addr) int {
		for node := 1; node <= c.Nodes; node++ {
			for _, pods := range c.PodRanges(node) {
				if pods.Contains(addr) {
					return node
				}
			}
		}
		return 0
	}
}
