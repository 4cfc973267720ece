// Package security checks what Dormouse's programs may do on a real Kubernetes,
// by the API server's own record of what they did, and how they bear being
// evicted. It is a package of its own because it restarts them.
package security

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

func TestMain(m *testing.M) { suite.Main(m) }

// appLabel tells the programs' pods apart.
const appLabel = "app.kubernetes.io/name"

// programs are the names of the programs' Deployments, and of their service
// accounts.
var programs = []string{"dormouse-operator", "dormouse-resolver"}

// podsOf are a program's pods that nobody has told to end.
func podsOf(ctx context.Context, program string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := suite.Cluster.Client.List(ctx, &list, client.InNamespace(env.SystemNamespace), client.MatchingLabels{appLabel: program}); err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", program, err)
	}
	var pods []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp.IsZero() {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// twoReady waits until a program has two pods, both ready and neither of them
// one of those before, and gives them.
func twoReady(ctx context.Context, t *testing.T, program string, before ...corev1.Pod) []corev1.Pod {
	t.Helper()
	old := map[string]bool{}
	for _, pod := range before {
		old[pod.Name] = true
	}
	var pods []corev1.Pod
	err := env.WaitUntil(ctx, "two pods of "+program+" are ready", func(ctx context.Context) (_ bool, err error) {
		pods, err = podsOf(ctx, program)
		ready := 0
		for _, pod := range pods {
			if !old[pod.Name] && isReady(pod) {
				ready++
			}
		}
		return err == nil && ready == 2 && len(pods) == 2, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

func isReady(pod corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
