package setup

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/tokenfile"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/options"
	"dormouse.dev/dormouse/operator/internal/report"
	"dormouse.dev/dormouse/operator/internal/slim"
)

// setupReports adds the report server, which takes reports on every replica.
func setupReports(ctx context.Context, mgr ctrl.Manager, o options.Options, verifier report.Verifier, token *tokenfile.File) (*report.Reports, error) {
	reports := report.New(report.Options{
		Cache:    mgr.GetCache(),
		Client:   mgr.GetClient(),
		Verifier: verifier,
		Operators: report.Operators{
			Account:  types.NamespacedName{Namespace: o.Namespace, Name: o.ServiceAccount},
			Selector: o.Selector,
		},
		Self:    o.PodName,
		Port:    o.Port,
		Token:   token,
		Metrics: metrics.NewReports(ctrlmetrics.Registry),
		Log:     mgr.GetLogger().WithName("report"),
	})
	if err := reports.Watch(ctx); err != nil {
		return nil, err
	}
	if err := mgr.Add(reports.Writer); err != nil {
		return nil, fmt.Errorf("add the writer of reports: %w", err)
	}
	return reports, nil
}

// cachedPods are the Pods that the cache has: those of Servers in all watched namespaces, and
// all in the operator's own namespace, where the resolvers and the other replicas are.
func cachedPods(o options.Options) (cache.ByObject, error) {
	servers, err := labels.NewRequirement(wellknown.ServerLabel, selection.Exists, nil)
	if err != nil {
		return cache.ByObject{}, fmt.Errorf("select the Pods of Servers: %w", err)
	}
	counted := o.Namespaces
	if len(counted) == 0 {
		counted = []string{cache.AllNamespaces}
	}
	where := map[string]cache.Config{}
	for _, namespace := range counted {
		where[namespace] = cache.Config{LabelSelector: labels.NewSelector().Add(*servers)}
	}
	where[o.Namespace] = cache.Config{LabelSelector: labels.Everything()}
	return cache.ByObject{Namespaces: where, Transform: slimPod}, nil
}

// slimPod keeps the fields of a Pod that the operator reads: its owner, its node, and its
// containers' states. A cluster may have ten thousand Pods.
func slimPod(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	of := pod.Namespace + "/" + pod.Labels[wellknown.FleetLabel]
	pod.Spec = corev1.PodSpec{
		NodeName:       pod.Spec.NodeName,
		Containers:     slim.Containers(of, slimContainers(pod.Spec.Containers)),
		InitContainers: slim.Containers(of, slimContainers(pod.Spec.InitContainers)),
	}
	s := &pod.Status
	pod.Status = corev1.PodStatus{
		Phase:                 s.Phase,
		Reason:                s.Reason,
		Message:               s.Message,
		Conditions:            slimConditions(s.Conditions),
		PodIP:                 s.PodIP,
		PodIPs:                s.PodIPs,
		InitContainerStatuses: slimStatuses(s.InitContainerStatuses),
		ContainerStatuses:     slimStatuses(s.ContainerStatuses),
	}
	slim.Pod(pod)
	return pod, nil
}

// slimConditions keeps those that are read.
func slimConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	kept := make([]corev1.PodCondition, 0, 3)
	for _, c := range conditions {
		if c.Type == corev1.PodScheduled || c.Type == corev1.ContainersReady || c.Type == corev1.PodReady {
			kept = append(kept, c)
		}
	}
	return kept
}

func slimContainers(containers []corev1.Container) []corev1.Container {
	list := make([]corev1.Container, 0, len(containers))
	for _, c := range containers {
		kept := corev1.Container{Name: c.Name, Ports: c.Ports, RestartPolicy: c.RestartPolicy}
		if c.ReadinessProbe != nil {
			kept.ReadinessProbe = &corev1.Probe{} // only its existence matters
		}
		list = append(list, kept)
	}
	return list
}

func slimStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(statuses) == 0 {
		return nil
	}
	list := make([]corev1.ContainerStatus, 0, len(statuses))
	for _, s := range statuses {
		list = append(list, corev1.ContainerStatus{
			Name: s.Name, State: s.State, LastTerminationState: s.LastTerminationState,
			Ready: s.Ready, RestartCount: s.RestartCount, Started: s.Started,
		})
	}
	return list
}
