package gameserver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// The number that a Server has becomes a UDP port of an ElasticService: the Server gets
// another one, at once if its Pod hasn't begun, and else with its next Pod.
func TestNoServerGetsAnElasticServicesUDPPort(t *testing.T) {
	for name, started := range map[string]bool{"a Pod that has begun": true, "a Pod that hasn't": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.game("first", func(s *v1alpha1.Server) {
				s.Spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7000, Protocol: v1alpha1.ServerProtocolUDP, Expose: v1alpha1.ExposeHostPort}}
			})
			if started {
				original := first.pod.DeepCopy()
				first.pod.Status.PodIP = "10.244.1.7"
				first.pod.Status.PodIPs = []corev1.PodIP{{IP: first.pod.Status.PodIP}}
				if err := w.c.Status().Patch(t.Context(), first.pod, client.MergeFrom(original)); err != nil {
					t.Fatal(err)
				}
			}
			number := hostPortOf(first.pod)
			w.eventually("the Server's host port", func(ctx context.Context) error {
				if ports := first.server(ctx).Status.Ports; len(ports) != 1 || ports[0].Port != number {
					return fmt.Errorf("it is %v, want %d", ports, number)
				}
				return nil
			})
			elasticUDP(t, w, number)
			if started {
				if err := w.c.Delete(t.Context(), first.pod, client.GracePeriodSeconds(0)); err != nil {
					t.Fatal(err)
				}
			}
			w.eventually("another Pod of Server first", func(ctx context.Context) error {
				pod := &corev1.Pod{}
				if err := w.c.Get(ctx, client.ObjectKeyFromObject(first.pod), pod); err != nil {
					return err
				}
				if pod.UID == first.pod.UID {
					return errors.New("it is the first one still")
				}
				if got := hostPortOf(pod); got == number || got == 0 {
					t.Errorf("it got host port %d, want another one than the UDP port of Service lobby", got)
				}
				return nil
			})
		})
	}
}

// elasticUDP makes an ElasticService whose Service has a UDP port.
func elasticUDP(t *testing.T, w *world, number int32) {
	t.Helper()
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "lobby"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "lobby"},
		Ports:    []corev1.ServicePort{{Name: "game", Protocol: corev1.ProtocolUDP, Port: number}},
	}}
	es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "lobby"}, Spec: v1alpha1.ElasticServiceSpec{
		Service: "lobby", ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "lobby"},
	}}
	for _, o := range []client.Object{svc, es} {
		if err := w.c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("the ElasticService's private Service", func(ctx context.Context) error {
		return w.c.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "lobby-dormouse"}, &corev1.Service{})
	})
}

func hostPortOf(pod *corev1.Pod) int32 { return pod.Spec.Containers[0].Ports[0].HostPort }
