package env

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/dev/devcluster/container"
	"dormouse.dev/dormouse/internal/gamepod"
)

// The programs, by the names of their Deployments.
const (
	Operator = "dormouse-operator"
	Resolver = "dormouse-resolver"
)

const (
	// lease is what operators choose a leader by.
	lease = "operator.dormouse.dev"
	// leaseFresh is longer than a leader takes to renew its lease, and shorter
	// than the lease.
	leaseFresh = 8 * time.Second
)

// Leader is the pod of the operator that leads, or an error if none does.
func (e *Env) Leader(ctx context.Context) (corev1.Pod, error) {
	l, err := e.lease(ctx)
	if err != nil {
		return corev1.Pod{}, err
	}
	if l.Spec.HolderIdentity == nil || l.Spec.RenewTime == nil || time.Since(l.Spec.RenewTime.Time) > leaseFresh {
		return corev1.Pod{}, errors.New("no operator leads")
	}
	name, _, _ := strings.Cut(*l.Spec.HolderIdentity, "_")
	pod := corev1.Pod{}
	if err := e.Client.Get(ctx, types.NamespacedName{Namespace: SystemNamespace, Name: name}, &pod); err != nil {
		return pod, fmt.Errorf("read the leading operator's pod: %w", err)
	}
	return pod, nil
}

// LeaseRenewed is when the leading operator last said that it leads.
func (e *Env) LeaseRenewed(ctx context.Context) (time.Time, error) {
	l, err := e.lease(ctx)
	if err != nil || l.Spec.RenewTime == nil {
		return time.Time{}, err
	}
	return l.Spec.RenewTime.Time, nil
}

func (e *Env) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{}
	if err := e.Client.Get(ctx, types.NamespacedName{Namespace: SystemNamespace, Name: lease}, l); err != nil {
		return nil, fmt.Errorf("read the operators' lease: %w", err)
	}
	return l, nil
}

// ReadyPods are a program's pods that are ready and not about to end.
func (e *Env) ReadyPods(ctx context.Context, program string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := e.Client.List(ctx, &list, client.InNamespace(SystemNamespace), client.MatchingLabels{"app.kubernetes.io/name": program})
	if err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", program, err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return !p.DeletionTimestamp.IsZero() || !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	}), nil
}

// ScaleProgram sets the replicas of one of Dormouse's Deployments.
func (e *Env) ScaleProgram(ctx context.Context, program string, replicas int32) error {
	d := &appsv1.Deployment{}
	if err := e.Client.Get(ctx, types.NamespacedName{Namespace: SystemNamespace, Name: program}, d); err != nil {
		return fmt.Errorf("read Deployment %s: %w", program, err)
	}
	changed := d.DeepCopy()
	changed.Spec.Replicas = &replicas
	if err := e.Client.Patch(ctx, changed, client.MergeFrom(d)); err != nil {
		return fmt.Errorf("scale Deployment %s to %d: %w", program, replicas, err)
	}
	return nil
}

// Container is the running container of one of Dormouse's pods.
func (e *Env) Container(pod corev1.Pod) (container.Container, error) {
	return e.Cluster.Container(ContainerID(pod))
}

// Sidecar is the running sidecar of a Server.
func (e *Env) Sidecar(ctx context.Context, s *v1alpha1.Server) (container.Container, error) {
	pod := &corev1.Pod{}
	if err := e.Client.Get(ctx, client.ObjectKeyFromObject(s), pod); err != nil {
		return container.Container{}, fmt.Errorf("read the Pod of Server %s: %w", s.Name, err)
	}
	if c := gamepod.SidecarStatus(pod); c != nil {
		_, id, _ := strings.Cut(c.ContainerID, "://")
		return e.Cluster.Container(id)
	}
	return container.Container{}, fmt.Errorf("the Pod of Server %s has no sidecar", s.Name)
}

// ContainerID is the runtime's name of a pod's first container that is not a sidecar.
func ContainerID(pod corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name != wellknown.SidecarContainer {
			_, id, _ := strings.Cut(c.ContainerID, "://")
			return id
		}
	}
	return ""
}
