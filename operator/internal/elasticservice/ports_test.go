package elasticservice

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func free(int32) bool { return false }

// gameOf is the owner of an ElasticService's TCP port named game.
func gameOf(uid types.UID) portOwner { return portOwner{uid, "game", corev1.ProtocolTCP} }

func TestAPassThatFailedBeforeTheStatusWasWrittenLeaksNoPort(t *testing.T) {
	a := newAllocator()
	es := lobby("", t0)
	es.Status.Ports = nil
	first, err := planPorts(t0, es, service(), a, free)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		again, err := planPorts(t0, es, service(), a, free)
		if err != nil || again[0] != first[0] {
			t.Errorf("a later pass gave %+v (%v), want %+v", again, err, first)
		}
	}
	if len(a.owners) != 1 {
		t.Errorf("%d ports are given out, want 1", len(a.owners))
	}
}

func TestPortsAreKeptWhileTheServiceHasThem(t *testing.T) {
	a := newAllocator()
	es, svc := lobby("", t0), service()
	svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "query", Protocol: corev1.ProtocolUDP, Port: 27015})
	es.Status.Ports = nil
	first, err := planPorts(t0, es, svc, a, free)
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != 2 || first[0].ResolverPort == first[1].ResolverPort {
		t.Fatalf("ports = %+v, want two different ones", first)
	}
	if first[0].Protocol != v1alpha1.ProtocolTCP || first[1].Protocol != v1alpha1.ProtocolUDP {
		t.Errorf("protocols = %s and %s, want tcp and udp", first[0].Protocol, first[1].Protocol)
	}
	es.Status.Ports = first
	again, err := planPorts(t0, es, svc, a, free)
	if err != nil || again[0] != first[0] || again[1] != first[1] {
		t.Errorf("second pass gave %+v (%v), want %+v", again, err, first)
	}
}

func TestAFreedPortRestsForTenMinutes(t *testing.T) {
	a := newAllocator()
	port, _ := a.allocate(t0, gameOf("es-1"), free)
	a.free(t0, port, "es-1")
	if again, _ := a.allocate(at(599), gameOf("es-1"), free); again == port {
		t.Errorf("port %d was given out again after 599 s", port)
	} else {
		a.free(at(599), again, "es-1")
	}
	if again, _ := a.allocate(at(601), gameOf("es-1"), free); again != port {
		t.Errorf("allocate after 601 s = %d, want %d, where the search begins", again, port)
	}
}

func TestAPortThatASliceStillNamesIsNotGivenOut(t *testing.T) {
	a := newAllocator()
	port, _ := a.allocate(t0, gameOf("es-1"), free)
	b := newAllocator()
	other, ok := b.allocate(t0, gameOf("es-1"), func(p int32) bool { return p == port })
	if !ok || other == port {
		t.Errorf("allocate = %d %v, want another port than %d", other, ok, port)
	}
}

func TestOfTwoObjectsWithOnePortTheFirstLearntKeepsIt(t *testing.T) {
	a := newAllocator()
	older, younger := lobby("", t0), lobby("", t0)
	younger.UID = "es-2"
	a.learn(10001, gameOf(older.UID))
	got, err := planPorts(t0, younger, service(), a, free)
	if err != nil || got[0].ResolverPort == 10001 {
		t.Errorf("the younger has %+v (%v), want another port than 10001", got, err)
	}
	kept, err := planPorts(t0, older, service(), a, free)
	if err != nil || kept[0].ResolverPort != 10001 {
		t.Errorf("the older has %+v (%v), want 10001", kept, err)
	}
}

func TestAPortThatChangesItsTransportGetsAnotherResolverPort(t *testing.T) {
	a := newAllocator()
	es, svc := lobby("", t0), service()
	a.learn(10001, gameOf(es.UID))
	svc.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	got, err := planPorts(t0, es, svc, a, free)
	if err != nil || got[0].ResolverPort == 10001 || got[0].Protocol != v1alpha1.ProtocolUDP {
		t.Errorf("ports = %+v (%v), want udp on another port than 10001", got, err)
	}
	if !t0.Before(a.resting[10001]) {
		t.Error("the port that was given up doesn't rest")
	}
}

func TestAGamesPortHasItsTransportAndKeepsItsNumber(t *testing.T) {
	a := newAllocator()
	es, svc := lobby("", t0), service()
	a.learn(10001, gameOf(es.UID))
	svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "bedrock", Protocol: corev1.ProtocolUDP, Port: 19132})
	es.Spec.Ports = []v1alpha1.PortSpec{
		{Name: "game", Protocol: v1alpha1.ProtocolMinecraft}, {Name: "bedrock", Protocol: v1alpha1.ProtocolBedrock},
	}
	got, err := planPorts(t0, es, svc, a, free)
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Protocol != v1alpha1.ProtocolMinecraft || got[0].ResolverPort != 10001 || got[1].Protocol != v1alpha1.ProtocolBedrock {
		t.Errorf("ports = %+v, want minecraft on 10001, which it had as tcp, and bedrock", got)
	}
	if owner := a.owners[got[1].ResolverPort]; owner.protocol != corev1.ProtocolUDP {
		t.Errorf("the port of bedrock is given out for %s", owner.protocol)
	}
}

func TestNoFreePortIsAnErrorThatSaysWhatToDo(t *testing.T) {
	a := newAllocator()
	for p := int32(v1alpha1.MinResolverPort); p <= v1alpha1.MaxResolverPort; p++ {
		a.learn(p, portOwner{"other", fmt.Sprint(p), corev1.ProtocolTCP})
	}
	es := lobby("", t0)
	es.Status.Ports = nil
	_, err := planPorts(t0, es, service(), a, free)
	if err == nil || !strings.Contains(err.Error(), "remove ElasticServices") {
		t.Errorf("planPorts = %v, want an error that says what to do", err)
	}
}

func BenchmarkAllocateWhenNearlyFull(b *testing.B) {
	a := newAllocator()
	for p := int32(v1alpha1.MinResolverPort); p < v1alpha1.MaxResolverPort; p++ {
		a.learn(p, portOwner{"other", fmt.Sprint(p), corev1.ProtocolTCP})
	}
	for b.Loop() {
		port, _ := a.allocate(t0, gameOf("es-1"), free)
		a.free(t0.Add(-time.Hour), port, "es-1")
	}
}
