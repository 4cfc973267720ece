package manifests

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WaitAvailable waits until every Deployment among the objects runs as many pods
// as it wants, all of its current template and available. When the context ends
// first, the error says what each pod that isn't ready waits for.
func WaitAvailable(ctx context.Context, c client.Client, objects []*unstructured.Unstructured, progress Progress) error {
	for _, object := range objects {
		if object.GroupVersionKind().GroupKind() != appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind() {
			continue
		}
		if err := waitDeployment(ctx, c, object, progress); err != nil {
			return err
		}
	}
	return nil
}

func waitDeployment(ctx context.Context, c client.Client, object *unstructured.Unstructured, progress Progress) error {
	var (
		deployment appsv1.Deployment
		lastErr    error
		said       string
	)
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		if lastErr = c.Get(ctx, client.ObjectKeyFromObject(object), &deployment); lastErr != nil {
			return false, nil //nolint:nilerr // Told when the context ends; until then it may pass.
		}
		done, state := rollout(&deployment)
		if line := fmt.Sprintf("%s: %s", describe(object), state); line != said {
			said = line
			progress.say("%s", line)
		}
		return done, nil
	})
	if err == nil {
		return nil
	}
	if lastErr == nil {
		// The context has ended, and the question wants an answer all the same.
		lastErr = explain(context.WithoutCancel(ctx), c, &deployment)
	}
	return fmt.Errorf("wait until %s is available: %w", describe(object), errors.Join(err, lastErr))
}

// rollout reports whether a Deployment runs what it wants, and how far it is.
func rollout(d *appsv1.Deployment) (bool, string) {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	switch status := d.Status; {
	case status.ObservedGeneration < d.Generation:
		return false, "not taken up yet"
	case status.UpdatedReplicas < want:
		return false, fmt.Sprintf("%d of %d pods created", status.UpdatedReplicas, want)
	case status.Replicas > status.UpdatedReplicas:
		return false, fmt.Sprintf("%d old pods to go", status.Replicas-status.UpdatedReplicas)
	case status.AvailableReplicas < want:
		return false, fmt.Sprintf("%d of %d pods available", status.AvailableReplicas, want)
	default:
		return true, fmt.Sprintf("%d of %d pods available", status.AvailableReplicas, want)
	}
}

// explain is an error that says what the Deployment's pods wait for.
func explain(ctx context.Context, c client.Client, d *appsv1.Deployment) error {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return fmt.Errorf("read its selector: %w", err)
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return fmt.Errorf("list its pods: %w", err)
	}
	if len(pods.Items) == 0 {
		return noPods(d)
	}
	var found []string
	for i := range pods.Items {
		if reason := waitsFor(&pods.Items[i]); reason != "" {
			found = append(found, fmt.Sprintf("pod %s: %s", pods.Items[i].Name, reason))
		}
	}
	return errors.New(strings.Join(found, "; "))
}

// noPods tells the Deployment's own reason, such as a pod that admission refuses.
func noPods(d *appsv1.Deployment) error {
	for _, condition := range d.Status.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure {
			return errors.New(condition.Message)
		}
	}
	return errors.New("it has no pods")
}

// waitsFor is what keeps a pod from being ready; empty when nothing does.
func waitsFor(pod *corev1.Pod) string {
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		switch {
		case status.State.Waiting != nil:
			return strings.TrimSuffix(status.State.Waiting.Reason+": "+status.State.Waiting.Message, ": ")
		case status.State.Terminated != nil:
			return fmt.Sprintf("container %s ended with code %d", status.Name, status.State.Terminated.ExitCode)
		case !status.Ready:
			return fmt.Sprintf("container %s runs and is not ready", status.Name)
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status != corev1.ConditionTrue {
			return condition.Reason + ": " + condition.Message
		}
	}
	if len(pod.Status.ContainerStatuses) == 0 {
		return "no node has started it"
	}
	return ""
}
