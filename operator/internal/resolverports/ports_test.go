package resolverports

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
)

func free(int32) bool { return false }

// gameOf is the owner of an ElasticService's TCP port named game.
func gameOf(uid types.UID) Owner { return Owner{"games", uid, "game", corev1.ProtocolTCP} }

func TestAPassThatFailedBeforeTheStatusWasWrittenLeaksNoPort(t *testing.T) {
	a := New(nil, 0)
	es := fixture.Lobby("", fixture.T0)
	es.Status.Ports = nil
	first, err := Assign(fixture.T0, es, fixture.Service(), a, free)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		again, err := Assign(fixture.T0, es, fixture.Service(), a, free)
		if err != nil || again[0] != first[0] {
			t.Errorf("a later pass gave %+v (%v), want %+v", again, err, first)
		}
	}
	if len(a.owners) != 1 {
		t.Errorf("%d ports are given out, want 1", len(a.owners))
	}
}

func TestPortsAreKeptWhileTheServiceHasThem(t *testing.T) {
	a := New(nil, 0)
	es, svc := fixture.Lobby("", fixture.T0), fixture.Service()
	svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "query", Protocol: corev1.ProtocolUDP, Port: 27015})
	es.Status.Ports = nil
	first, err := Assign(fixture.T0, es, svc, a, free)
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
	again, err := Assign(fixture.T0, es, svc, a, free)
	if err != nil || again[0] != first[0] || again[1] != first[1] {
		t.Errorf("second pass gave %+v (%v), want %+v", again, err, first)
	}
}

func TestAFreedPortRestsForTenMinutes(t *testing.T) {
	a := New(nil, 0)
	port, _ := a.Allocate(fixture.T0, gameOf("es-1"), free)
	a.Free(fixture.T0, port, "es-1")
	if again, _ := a.Allocate(fixture.At(599), gameOf("es-1"), free); again == port {
		t.Errorf("port %d was given out again after 599 s", port)
	} else {
		a.Free(fixture.At(599), again, "es-1")
	}
	if again, _ := a.Allocate(fixture.At(601), gameOf("es-1"), free); again != port {
		t.Errorf("allocate after 601 s = %d, want %d, where the search begins", again, port)
	}
}

func TestAPortThatASliceStillNamesIsNotGivenOut(t *testing.T) {
	a := New(nil, 0)
	port, _ := a.Allocate(fixture.T0, gameOf("es-1"), free)
	b := New(nil, 0)
	other, err := b.Allocate(fixture.T0, gameOf("es-1"), func(p int32) bool { return p == port })
	if err != nil || other == port {
		t.Errorf("allocate = %d %v, want another port than %d", other, err, port)
	}
}

func TestOfTwoObjectsWithOnePortTheFirstLearntKeepsIt(t *testing.T) {
	a := New(nil, 0)
	older, younger := fixture.Lobby("", fixture.T0), fixture.Lobby("", fixture.T0)
	younger.UID = "es-2"
	a.Learn(10001, gameOf(older.UID))
	got, err := Assign(fixture.T0, younger, fixture.Service(), a, free)
	if err != nil || got[0].ResolverPort == 10001 {
		t.Errorf("the younger has %+v (%v), want another port than 10001", got, err)
	}
	kept, err := Assign(fixture.T0, older, fixture.Service(), a, free)
	if err != nil || kept[0].ResolverPort != 10001 {
		t.Errorf("the older has %+v (%v), want 10001", kept, err)
	}
}

func TestAPortThatChangesItsTransportGetsAnotherResolverPort(t *testing.T) {
	a := New(nil, 0)
	es, svc := fixture.Lobby("", fixture.T0), fixture.Service()
	a.Learn(10001, gameOf(es.UID))
	svc.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	got, err := Assign(fixture.T0, es, svc, a, free)
	if err != nil || got[0].ResolverPort == 10001 || got[0].Protocol != v1alpha1.ProtocolUDP {
		t.Errorf("ports = %+v (%v), want udp on another port than 10001", got, err)
	}
	if !fixture.T0.Before(a.resting[10001]) {
		t.Error("the port that was given up doesn't rest")
	}
}

func TestAGamesPortHasItsTransportAndKeepsItsNumber(t *testing.T) {
	a := New(nil, 0)
	es, svc := fixture.Lobby("", fixture.T0), fixture.Service()
	a.Learn(10001, gameOf(es.UID))
	svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "bedrock", Protocol: corev1.ProtocolUDP, Port: 19132})
	es.Spec.Ports = []v1alpha1.PortSpec{
		{Name: "game", Protocol: v1alpha1.ProtocolMinecraft}, {Name: "bedrock", Protocol: v1alpha1.ProtocolBedrock},
	}
	got, err := Assign(fixture.T0, es, svc, a, free)
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Protocol != v1alpha1.ProtocolMinecraft || got[0].ResolverPort != 10001 || got[1].Protocol != v1alpha1.ProtocolBedrock {
		t.Errorf("ports = %+v, want minecraft on 10001, which it had as tcp, and bedrock", got)
	}
	if owner := a.owners[got[1].ResolverPort]; owner.Protocol != corev1.ProtocolUDP {
		t.Errorf("the port of bedrock is given out for %s", owner.Protocol)
	}
}

func TestNoFreePortIsAnErrorThatSaysWhatToDo(t *testing.T) {
	a := New(nil, 0)
	for p := int32(wellknown.MinResolverPort); p <= wellknown.MaxResolverPort; p++ {
		a.Learn(p, Owner{"games", "other", fmt.Sprint(p), corev1.ProtocolTCP})
	}
	es := fixture.Lobby("", fixture.T0)
	es.Status.Ports = nil
	_, err := Assign(fixture.T0, es, fixture.Service(), a, free)
	if err == nil || !strings.Contains(err.Error(), "remove ElasticServices") {
		t.Errorf("planPorts = %v, want an error that says what to do", err)
	}
}

func BenchmarkAllocateWhenNearlyFull(b *testing.B) {
	a := New(nil, 0)
	for p := int32(wellknown.MinResolverPort); p < wellknown.MaxResolverPort; p++ {
		a.Learn(p, Owner{"games", "other", fmt.Sprint(p), corev1.ProtocolTCP})
	}
	for b.Loop() {
		port, _ := a.Allocate(fixture.T0, gameOf("es-1"), free)
		a.Free(fixture.T0.Add(-time.Hour), port, "es-1")
	}
}

// many is a Service with so many ports.
func many(ports int) *corev1.Service {
	svc := fixture.Service()
	svc.Spec.Ports = nil
	for i := range ports {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(i + 1), Protocol: corev1.ProtocolTCP})
	}
	return svc
}

func TestNobodyTakesAllResolverPorts(t *testing.T) {
	a := New(nil, 100)
	one := fixture.Lobby("", fixture.T0)
	one.Status.Ports = nil
	ports, flaw := Assign(fixture.T0, one, many(10_000), a, free)
	if len(ports) != maxPorts || flaw == nil || flaw.Reason != reasons.TooManyPorts || !strings.Contains(flaw.Message, "the first 64") {
		t.Errorf("a Service with 10,000 ports gets %d, %v", len(ports), flaw)
	}
	one.Status.Ports = ports
	other := fixture.Lobby("", fixture.T0)
	other.UID, other.Status.Ports = "es-2", nil
	ports, flaw = Assign(fixture.T0, other, many(60), a, free)
	if len(ports) != 36 || flaw == nil || flaw.Reason != reasons.PortsExhausted ||
		!strings.Contains(flaw.Message, "namespace games has 100") || !strings.Contains(flaw.Message, "--max-ports-per-namespace") {
		t.Errorf("the second gets %d, %v", len(ports), flaw)
	}
	other.Status.Ports = ports
	if again, flaw := Assign(fixture.T0, other, many(20), a, free); len(again) != 20 || flaw != nil {
		t.Errorf("with fewer ports it has %d, %v", len(again), flaw)
	}
	stranger := fixture.Lobby("", fixture.T0)
	stranger.Namespace, stranger.UID, stranger.Status.Ports = "others", "es-3", nil
	if ports, flaw := Assign(fixture.T0, stranger, many(5), a, free); len(ports) != 5 || flaw != nil {
		t.Errorf("another namespace gets %d, %v", len(ports), flaw)
	}
	if len(a.counts) != 2 || a.counts["games"] != 84 || a.counts["others"] != 5 {
		t.Errorf("the counts are %v", a.counts)
	}
	for _, p := range a.ports {
		a.Free(fixture.T0, p, a.owners[p].UID)
	}
	if len(a.counts) != 0 {
		t.Errorf("in the end the counts are %v", a.counts)
	}
}

// What of spec.ports can't be followed is said, and the port is held as if it weren't there.
func TestAWrongEntryLeavesItsPortHeld(t *testing.T) {
	svc := fixture.Service()
	svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "query", Protocol: corev1.ProtocolUDP, Port: 27015})
	for name, c := range map[string]struct {
		entry  v1alpha1.PortSpec
		change func(*corev1.Service)
		says   string
		want   int
	}{
		"a name that isn't there":   {v1alpha1.PortSpec{Name: "gmae", Protocol: v1alpha1.ProtocolMinecraft}, nil, `spec.ports names "gmae"`, 2},
		"another transport":         {v1alpha1.PortSpec{Name: "query", Protocol: v1alpha1.ProtocolMinecraft}, nil, `says minecraft for "query"`, 2},
		"a readiness UDP has not":   {v1alpha1.PortSpec{Name: "query", Readiness: v1alpha1.ReadinessConnect}, nil, `says readiness Connect for "query"`, 2},
		"a port that can't be held": {v1alpha1.PortSpec{Name: "game"}, func(s *corev1.Service) { s.Spec.Ports[1].Protocol = corev1.ProtocolSCTP }, `Port "query" of Service lobby is SCTP`, 1},
	} {
		es, svc := fixture.Lobby("", fixture.T0), svc.DeepCopy()
		es.Status.Ports, es.Spec.Ports = nil, []v1alpha1.PortSpec{c.entry}
		if c.change != nil {
			c.change(svc)
		}
		if ob := planner.CheckService(es, planner.Observed{Service: svc}); ob != nil {
			t.Errorf("%s: nothing can be done, it says: %s", name, ob.Message)
		}
		ports, flaw := Assign(fixture.T0, es, svc, New(nil, 0), free)
		if flaw == nil || !strings.Contains(flaw.Message, c.says) || len(ports) != c.want {
			t.Errorf("%s: %d ports and %v, want %d and %q", name, len(ports), flaw, c.want, c.says)
			continue
		}
		if ports[0].Protocol != v1alpha1.ProtocolTCP || c.want > 1 && (ports[1].Protocol != v1alpha1.ProtocolUDP || ports[1].Readiness != v1alpha1.ReadinessAuto) {
			t.Errorf("%s: the ports are %+v", name, ports)
		}
	}
}

// Somebody who changes the Service back finds the same ports.
func TestAServiceNoneOfWhosePortsCanBeHeldKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	es, svc, a := fixture.Lobby("", fixture.T0), fixture.Service(), New(nil, 0)
	port := es.Status.Ports[0]
	a.Learn(port.ResolverPort, Owner{es.Namespace, es.UID, port.Name, port.Protocol.Transport()})
	svc.Spec.Ports[0].Protocol = corev1.ProtocolSCTP
	ports, flaw := Assign(fixture.T0, es, svc, a, func(int32) bool { return false })
	if len(ports) > 0 || flaw == nil || flaw.Reason != reasons.ServiceUnsupported {
		t.Errorf("the ports are %v and the flaw %v, want none and %s", ports, flaw, reasons.ServiceUnsupported)
	}
	if a.Learn(port.ResolverPort, Owner{Namespace: "others", UID: "other", Name: "game", Protocol: corev1.ProtocolTCP}) {
		t.Error("its resolver port is another's now")
	}
}

func TestAFrontsPortIsItsOwnUntilNobodySharesIt(t *testing.T) {
	t.Parallel()
	key := types.NamespacedName{Namespace: "games", Name: "mc"}
	now, free := time.Unix(1000, 0), func(int32) bool { return false }
	a := New(nil, 0)
	first, _ := a.Allocate(now, OfFront(key, "mc"), free)
	again, _ := a.Allocate(now, OfFront(key, "mc"), free)
	other, _ := a.Allocate(now, OfFront(key, "tls"), free)
	if first != again || first == other {
		t.Fatalf("one port has %d and then %d, another %d", first, again, other)
	}
	// A status that says otherwise is that of an ElasticService that lags behind.
	if a.Learn(first+1, OfFront(key, "mc")) {
		t.Error("the front has two resolver ports")
	}
	a.FreeAll(now, OfFront(key, "").UID, func() bool { return false })
	if again, _ = a.Allocate(now, OfFront(key, "mc"), free); again != first {
		t.Errorf("a front that somebody has begun to share again has port %d, want %d", again, first)
	}
	a.FreeAll(now, OfFront(key, "").UID, func() bool { return true })
	if again, _ = a.Allocate(now.Add(Rest-time.Second), OfFront(key, "mc"), free); again == first {
		t.Error("a freed port is given out again before it has rested")
	}
	if len(a.owners) != 1 || len(a.ports) != 1 {
		t.Errorf("%d and %d entries, want one", len(a.owners), len(a.ports))
	}
}
