package elasticservice_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// overUDP gives a Service one UDP port.
func overUDP(number int32) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Name: "game", Protocol: corev1.ProtocolUDP, Port: number}}
	}
}

// What ends UDP sessions because it has the number of a Service's UDP port is named,
// also when it comes later, and until it goes.
func TestANumberThatEndsUDPSessionsIsNamed(t *testing.T) {
	t.Parallel()
	nodePort := func(number int32) client.Object {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeNodePort,
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolUDP, Port: 1, NodePort: number}},
		}}
	}
	server := func(port v1alpha1.ServerPort) client.Object {
		port.Name = "game"
		return &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: v1alpha1.ServerSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "none"}}}},
			Ports:    []v1alpha1.ServerPort{port},
		}}
	}
	exposed := func(number int32, protocol v1alpha1.ServerProtocol) client.Object {
		return server(v1alpha1.ServerPort{ContainerPort: 7000, Protocol: protocol, Expose: v1alpha1.ExposeHostPort, HostPort: number})
	}
	cases := map[string]struct {
		number int32
		other  client.Object
		// reason is why sessions end; empty: they don't.
		reason, says string
	}{
		"another Service's node port":        {number: 30011, other: nodePort(30011), reason: reasons.NodePortClash, says: "UDP port 30011 of Service lobby is also a node port of Service NAMESPACE/other"},
		"a Server's host port":               {number: 30012, other: exposed(30012, v1alpha1.ServerProtocolUDP), reason: reasons.HostPortClash, says: "UDP port 30012 of Service lobby is also a host port of Server NAMESPACE/other"},
		"a Server's port for both":           {number: 30013, other: exposed(30013, v1alpha1.ServerProtocolTCPUDP), reason: reasons.HostPortClash, says: "host port of Server"},
		"a Server's host port for TCP":       {number: 30014, other: exposed(30014, v1alpha1.ServerProtocolTCP)},
		"a Server's port that isn't exposed": {number: 30015, other: server(v1alpha1.ServerPort{ContainerPort: 30015, Protocol: v1alpha1.ServerProtocolUDP})},
		"another node port":                  {number: 30016, other: nodePort(30017)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.deployment("lobby", 0)
			w.service("lobby", overUDP(tc.number))
			w.elastic("lobby")
			kept := hasCondition(conditions.UDPSessionsKept, metav1.ConditionTrue, reasons.OK)
			w.want("lobby", promptly, kept)
			w.create(tc.other)
			if tc.reason == "" {
				w.stays("lobby", time.Second, kept)
				return
			}
			es := w.want("lobby", promptly, hasCondition(conditions.UDPSessionsKept, metav1.ConditionFalse, tc.reason), ready)
			message := meta.FindStatusCondition(es.Status.Conditions, conditions.UDPSessionsKept).Message
			if want := strings.ReplaceAll(tc.says, "NAMESPACE", w.ns); !strings.Contains(message, want) {
				t.Errorf("the message is %q, want %q in it", message, want)
			}
			w.wantWarning(tc.reason, "UDP port")
			if err := w.c.Delete(t.Context(), tc.other); err != nil {
				t.Fatal(err)
			}
			w.want("lobby", promptly, kept)
		})
	}
}

// A Service's own node port, and TCP, end nothing.
func TestAServicesOwnPortsEndNoSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("lobby", 0)
	w.service("lobby", overUDP(30021), func(s *corev1.Service) {
		s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30021
	})
	w.elastic("lobby")
	w.want("lobby", promptly, hasCondition(conditions.UDPSessionsKept, metav1.ConditionTrue, reasons.OK))
	w.deployment("web", 0)
	w.service("web")
	w.elastic("web")
	w.want("web", promptly, hasCondition(conditions.UDPSessionsKept, metav1.ConditionTrue, reasons.NotNeeded))
}

// A clash ends when what has the number gets another one, and not when only one of
// several that have it goes.
func TestAClashEndsWithTheLastThatHasTheNumber(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("lobby", 0)
	w.service("lobby", overUDP(30031))
	w.elastic("lobby")
	kept := hasCondition(conditions.UDPSessionsKept, metav1.ConditionTrue, reasons.OK)
	named := func(name string) check { return message(conditions.UDPSessionsKept, w.ns+"/"+name) }
	w.want("lobby", promptly, kept)
	other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.ServiceSpec{
		Type:  corev1.ServiceTypeNodePort,
		Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolUDP, Port: 1, NodePort: 30031}},
	}}
	w.create(other)
	w.want("lobby", promptly, named("other"))
	w.edit(other, func() { other.Spec.Ports[0].NodePort = 30032 })
	w.want("lobby", promptly, kept)

	var servers []*v1alpha1.Server
	for _, name := range []string{"b", "a", "c"} {
		s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ServerSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "none"}}}},
			Ports: []v1alpha1.ServerPort{{
				Name: "game", ContainerPort: 7000, Protocol: v1alpha1.ServerProtocolUDP, Expose: v1alpha1.ExposeHostPort, HostPort: 30031,
			}},
		}}
		w.create(s)
		servers = append(servers, s)
	}
	w.want("lobby", promptly, hasCondition(conditions.UDPSessionsKept, metav1.ConditionFalse, reasons.HostPortClash))
	for _, s := range servers {
		if err := w.c.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	w.want("lobby", promptly, kept)
}
