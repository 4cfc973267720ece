package gameserver

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/gameserver/planner"
	"dormouse.dev/dormouse/operator/internal/gameserver/podbuilder"
)

// createPod creates a Server's Pod, with the host ports that were picked. refused is what its
// owner, or the administrator, has to fix.
func (r *Reconciler) createPod(ctx context.Context, s *v1alpha1.Server, hostPorts []int32) (refused, err error) {
	// The sidecar is as the administrator's PodTemplate has it.
	t := &corev1.PodTemplate{}
	if err := r.Client.Get(ctx, r.SidecarTemplate, t); err != nil {
		return fmt.Errorf("the PodTemplate %s, which says what the sidecar is, can't be read; apply config/sidecar: %w", r.SidecarTemplate, err), nil
	}
	if len(t.Template.Spec.Containers) == 0 {
		return fmt.Errorf("the PodTemplate %s, which says what the sidecar is, has no container", r.SidecarTemplate), nil
	}
	sidecar := podbuilder.Sidecar{
		Container: t.Template.Spec.Containers[0], OperatorURL: r.OperatorURL, APIURL: r.APIURL, ReportKey: r.reportKey(ctx, s, t),
		PullSecrets: t.Template.Spec.ImagePullSecrets,
		AfterGame:   t.Template.Annotations[wellknown.SidecarStartAnnotation] == wellknown.SidecarStartAfterGame,
	}
	if len(s.Spec.Storage) > 0 {
		if unfilled, err := r.keepClaims(ctx, s); err != nil || unfilled != nil {
			return r.waitForFill(s, unfilled, err)
		}
	}
	if s.Annotations[wellknown.GameAPIAnnotation] == "true" {
		if _, err := r.keepCode(ctx, s); err != nil {
			return forUser(err)
		}
	}
	pod := podbuilder.Build(s, sidecar, hostPorts, s.Spec.Deletion.Unreported != v1alpha1.DeletionDenied)
	err = r.Client.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		return r.taken(ctx, s)
	}
	if err == nil {
		r.made.Add(string(s.UID), r.Now())
	}
	return forUser(wrapf(err, "create Pod %s", client.ObjectKeyFromObject(s)))
}

// taken finds out whose a Pod is that has the Server's name and that the cache doesn't show.
func (r *Reconciler) taken(ctx context.Context, s *v1alpha1.Server) (refused, err error) {
	pod := &corev1.Pod{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(s), pod); err != nil {
		return nil, wrapf(client.IgnoreNotFound(err), "read Pod %s", client.ObjectKeyFromObject(s))
	}
	if !metav1.IsControlledBy(pod, s) {
		return errStranger, nil
	}
	_, err = r.unseen(ctx, s, planner.Observed{})
	r.made.Add(string(s.UID), r.Now())
	return nil, err
}

func (r *Reconciler) deletePod(ctx context.Context, pod *corev1.Pod, opts ...client.DeleteOption) error {
	for i, opt := range opts {
		if p, ok := opt.(client.Preconditions); ok {
			p.UID = &pod.UID
			opts[i] = p
		}
	}
	if len(opts) == 0 {
		opts = append(opts, client.Preconditions{UID: &pod.UID})
	}
	err := r.Client.Delete(ctx, pod, opts...)
	return wrapf(client.IgnoreNotFound(err), "delete Pod %s", client.ObjectKeyFromObject(pod))
}

// markPod notes on a Pod whether it may be evicted.
func (r *Reconciler) markPod(ctx context.Context, pod *corev1.Pod, deletable bool) error {
	var meta metav1.ObjectMeta
	podbuilder.SetDeletable(&meta, deletable)
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "labels": meta.Labels, "annotations": meta.Annotations}})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = r.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, body))
	return wrapf(client.IgnoreNotFound(err), "mark Pod %s", client.ObjectKeyFromObject(pod))
}

// unseen looks for a Pod of a Server that is about to be released which the cache doesn't show:
// somebody may have removed the label by which it is watched. Such a Pod gets the label back.
func (r *Reconciler) unseen(ctx context.Context, s *v1alpha1.Server, o planner.Observed) (bool, error) {
	if o.Stranger {
		return false, nil
	}
	pod := &corev1.Pod{}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(s), pod)
	if err != nil || !metav1.IsControlledBy(pod, s) || planner.Ended(pod) {
		return false, wrapf(client.IgnoreNotFound(err), "look for the Pod of Server %s", client.ObjectKeyFromObject(s))
	}
	if pod.Labels[wellknown.ServerLabel] == s.Name {
		return true, nil // the cache is about to show it
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "labels": map[string]string{wellknown.ServerLabel: s.Name}}})
	if err != nil {
		return true, fmt.Errorf("encode a patch: %w", err)
	}
	err = r.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, body))
	return true, wrapf(client.IgnoreNotFound(err), "label Pod %s", client.ObjectKeyFromObject(pod))
}

// deleteOrphan deletes the Pod of a Server that doesn't exist according to the API server
// itself: the cache may not have a new one yet.
func (r *Reconciler) deleteOrphan(ctx context.Context, pod *corev1.Pod) error {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Server" || pod.DeletionTimestamp != nil {
		return nil
	}
	s := &v1alpha1.Server{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, s)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("look for its Server: %w", err)
	}
	if err == nil && s.UID == owner.UID {
		return nil
	}
	r.tell(r.picker.Hold(owner.UID, nil))
	return r.deletePod(ctx, pod)
}

// markRestart tells a Pod's sidecar that the Pod is to end for another one.
func (r *Reconciler) markRestart(ctx context.Context, pod *corev1.Pod) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]string{wellknown.RestartAnnotation: "true"},
	}})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = r.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, body))
	return wrapf(client.IgnoreNotFound(err), "mark Pod %s", client.ObjectKeyFromObject(pod))
}
