package env

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Describe tells what is in a namespace, and what Dormouse's programs logged
// last, for a person who looks into a failure.
func (e *Env) Describe(ctx context.Context, namespace string) (string, error) {
	var b strings.Builder
	var services v1alpha1.ElasticServiceList
	var fleets v1alpha1.FleetList
	var servers v1alpha1.ServerList
	var deployments appsv1.DeploymentList
	var slices discoveryv1.EndpointSliceList
	var pods corev1.PodList
	var events eventsv1.EventList
	for _, list := range []client.ObjectList{&services, &fleets, &servers, &deployments, &slices, &pods, &events} {
		if err := e.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return b.String(), fmt.Errorf("list %T: %w", list, err)
		}
	}
	for _, es := range services.Items {
		fmt.Fprintf(&b, "ElasticService %s: mode %s, phase %s, sessions %d, queued %d, ports %v\n",
			es.Name, es.Status.Mode, es.Status.Phase, es.Status.Sessions, es.Status.Queued, es.Status.Ports)
		for _, c := range es.Status.Conditions {
			fmt.Fprintf(&b, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, f := range fleets.Items {
		fmt.Fprintf(&b, "Fleet %s: wants %d, has %d, ready %d, draining %d, players %d, conditions %v\n", f.Name, ptr.Deref(f.Spec.Replicas, 1),
			f.Status.Replicas, f.Status.ReadyReplicas, f.Status.DrainingReplicas, f.Status.Players, f.Status.Conditions)
	}
	for _, s := range servers.Items {
		fmt.Fprintf(&b, "Server %s: deleted %v, drain %v, status %+v\n", s.Name, s.DeletionTimestamp, s.Spec.Drain, s.Status)
	}
	for _, d := range deployments.Items {
		fmt.Fprintf(&b, "Deployment %s: wants %d, ready %d\n", d.Name, ptr.Deref(d.Spec.Replicas, 1), d.Status.ReadyReplicas)
	}
	for _, s := range slices.Items {
		fmt.Fprintf(&b, "EndpointSlice %s:", s.Name)
		for _, p := range s.Ports {
			fmt.Fprintf(&b, " %s=%d", ptr.Deref(p.Name, ""), ptr.Deref(p.Port, 0))
		}
		for _, ep := range s.Endpoints {
			fmt.Fprintf(&b, " %v(ready %v, serving %v, terminating %v)", ep.Addresses,
				ptr.Deref(ep.Conditions.Ready, true), ptr.Deref(ep.Conditions.Serving, true), ptr.Deref(ep.Conditions.Terminating, false))
		}
		b.WriteByte('\n')
	}
	for _, p := range pods.Items {
		fmt.Fprintf(&b, "Pod %s: %s on %s, %s%s\n", p.Name, p.Status.Phase, p.Spec.NodeName, p.Status.PodIP, e.dropped(p))
	}
	for _, ev := range events.Items {
		fmt.Fprintf(&b, "%s %s %s/%s: %s\n", ev.EventTime.Format("15:04:05.000"), ev.Reason, ev.Regarding.Kind, ev.Regarding.Name, ev.Note)
	}
	err := e.logs(ctx, &b)
	return shorten(b.String()), err
}

// shorten cuts lines that nobody reads to their end.
func shorten(text string) string {
	const most = 400
	var b strings.Builder
	for line := range strings.Lines(text) {
		if len(line) > most {
			line = strings.ToValidUTF8(line[:most], "") + "…\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// dropped tells of a running pod's datagrams that found a socket's buffer full.
func (e *Env) dropped(pod corev1.Pod) string {
	container, err := e.Container(pod)
	if err != nil {
		return ""
	}
	n, err := container.DatagramsDropped()
	if err != nil {
		return ", " + err.Error()
	}
	return fmt.Sprintf(", %d datagrams dropped at full sockets", n)
}

// refusals appends what a pod dropped and refused, by its own counters.
func (e *Env) refusals(ctx context.Context, b *strings.Builder, pod corev1.Pod) {
	families, err := scrapePod(ctx, pod)
	if err != nil {
		fmt.Fprintf(b, "no metrics: %v\n", err)
		return
	}
	for name, family := range families {
		if !strings.HasPrefix(name, "dormouse_") || !strings.Contains(name, "_dropped_") && !strings.Contains(name, "_refused_") {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetCounter().GetValue() > 0 {
				fmt.Fprintf(b, "%s %v\n", name, m)
			}
		}
	}
}

// logs appends the last lines of each of Dormouse's pods.
func (e *Env) logs(ctx context.Context, b *strings.Builder) error {
	var pods corev1.PodList
	if err := e.Client.List(ctx, &pods, client.InNamespace(SystemNamespace)); err != nil {
		return fmt.Errorf("list pods of %s: %w", SystemNamespace, err)
	}
	for _, pod := range pods.Items {
		fmt.Fprintf(b, "--- %s%s\n", pod.Name, e.dropped(pod))
		e.refusals(ctx, b, pod)
		text, err := e.log(ctx, pod, &corev1.PodLogOptions{TailLines: new(int64(15))})
		if err != nil {
			fmt.Fprintf(b, "no log: %v\n", err)
		}
		b.WriteString(text)
	}
	return nil
}

// Log is all that a pod of one container has logged since it was last started.
func (e *Env) Log(ctx context.Context, pod corev1.Pod) (string, error) {
	return e.log(ctx, pod, &corev1.PodLogOptions{})
}

func (e *Env) log(ctx context.Context, pod corev1.Pod, options *corev1.PodLogOptions) (string, error) {
	set, err := kubernetes.NewForConfig(e.Config)
	if err != nil {
		return "", fmt.Errorf("connect to %s: %w", e.Config.Host, err)
	}
	text, err := set.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).DoRaw(ctx)
	if err != nil {
		return string(text), fmt.Errorf("read the log of Pod %s: %w", pod.Name, err)
	}
	return string(text), nil
}
