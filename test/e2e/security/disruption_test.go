package security

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

func TestTheReplicasOfAProgramAreOnDifferentNodes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), suite.TestTimeout)
	defer cancel()
	for _, program := range programs {
		pods := twoReady(ctx, t, program)
		if pods[0].Spec.NodeName == pods[1].Spec.NodeName {
			t.Errorf("both pods of %s are on %s", program, pods[0].Spec.NodeName)
		}
	}
}

// TestADrainTakesOneReplicaAtATime evicts as kubectl drain does.
func TestADrainTakesOneReplicaAtATime(t *testing.T) {
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), suite.TestTimeout)
			defer cancel()
			pods := twoReady(ctx, t, program)
			// The budget knows of pods a moment after they are ready.
			wait := func(what string, pod corev1.Pod) {
				t.Helper()
				err := env.WaitUntil(ctx, what, func(ctx context.Context) (bool, error) {
					err := evict(ctx, pod)
					return err == nil, err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			wait("the first pod is evicted", pods[0])
			if err := evict(ctx, pods[1]); !apierrors.IsTooManyRequests(err) {
				t.Errorf("evicting the second pod at once: %v, want it refused", err)
			}
			twoReady(ctx, t, program, pods[0])
			wait("the second pod is evicted once another is ready", pods[1])
			last := twoReady(ctx, t, program, pods...)
			if last[0].Spec.NodeName == last[1].Spec.NodeName {
				t.Errorf("after the drain both pods are on %s", last[0].Spec.NodeName)
			}
		})
	}
}

func evict(ctx context.Context, pod corev1.Pod) error {
	return suite.Cluster.Client.SubResource("eviction").Create(ctx, &pod, &policyv1.Eviction{})
}
