package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/devcluster"
	"dormouse.dev/dormouse/test/env"
)

// The programs, and the Lease by which operators choose a leader.
const (
	operator = "dormouse-operator"
	resolver = "dormouse-resolver"
	lease    = "operator.dormouse.dev"
	// leaseFresh is longer than a leader takes to renew its lease, and shorter
	// than the lease.
	leaseFresh = 8 * time.Second
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
	var list corev1.PodList
	err := r.env.Client.List(ctx, &list, client.InNamespace(env.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/name": program})
	if err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", program, err)
	}
	up := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !p.DeletionTimestamp.IsZero() || !ready(p) })
	slices.SortFunc(up, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Spec.NodeName, b.Spec.NodeName), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	return up, nil
}

func ready(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// leader is the name of the leading operator's pod, or an error if the lease is
// not being renewed.
func (r *run) leader(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	l := &coordinationv1.Lease{}
	if err := r.env.Client.Get(ctx, types.NamespacedName{Namespace: env.SystemNamespace, Name: lease}, l); err != nil {
		return "", fmt.Errorf("read the operators' lease: %w", err)
	}
	if l.Spec.HolderIdentity == nil || l.Spec.RenewTime == nil || time.Since(l.Spec.RenewTime.Time) > leaseFresh {
		return "", errors.New("no operator leads")
	}
	pod, _, _ := strings.Cut(*l.Spec.HolderIdentity, "_")
	return pod, nil
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
	leader, err := r.leader(ctx)
	if err != nil {
		return err
	}
	for _, program := range []string{operator, resolver} {
		pods, err := r.pods(ctx, program)
		if err != nil {
			return err
		}
		if len(pods) < 2 {
			return fmt.Errorf("%d pods of %s are ready, want 2", len(pods), program)
		}
		if program == operator && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Name == leader }) {
			return fmt.Errorf("operator %s leads and is not ready", leader)
		}
	}
	return nil
}

// waitWhole waits until nothing is missing.
func (r *run) waitWhole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, wholeWithin)
	defer cancel()
	return env.WaitUntil(ctx, "the cluster is whole", func(ctx context.Context) (bool, error) {
		err := r.whole(ctx)
		return err == nil, err
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
		return ready(*p) && containerID(*p) != containerID(killed), nil
	})
}

// replace deletes a pod and waits until another is there instead.
func (r *run) replace(ctx context.Context, pod corev1.Pod) error {
	if err := r.env.Client.Delete(ctx, &pod); err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return r.waitWhole(ctx)
}

func containerID(p corev1.Pod) string {
	if len(p.Status.ContainerStatuses) == 0 {
		return ""
	}
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	return id
}

func restarts(p corev1.Pod) int32 {
	if len(p.Status.ContainerStatuses) == 0 {
		return 0
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

func (r *run) container(p corev1.Pod) (devcluster.Container, error) {
	return r.env.Cluster.Container(containerID(p))
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
