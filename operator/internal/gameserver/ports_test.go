package gameserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func withPorts(name string, ports ...v1alpha1.ServerPort) *v1alpha1.Server {
	return &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name, UID: types.UID(name)},
		Spec: v1alpha1.ServerSpec{Ports: ports, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "game"}},
		}}},
	}
}

var hostPort = v1alpha1.ServerPort{Name: "game", ContainerPort: 7777, Expose: v1alpha1.ExposeHostPort}

func TestEachPortIsUsedAsOftenAsAnyOther(t *testing.T) {
	p := newPicker(7000, 7003)
	uses := map[int32]int{}
	for i := range 10 {
		ports, err := p.pick(withPorts(fmt.Sprint(i), hostPort))
		if err != nil {
			t.Fatal(err)
		}
		uses[ports[0]]++
	}
	if diff := cmp.Diff(map[int32]int{7000: 3, 7001: 3, 7002: 2, 7003: 2}, uses); diff != "" {
		t.Errorf("uses (-want +got):\n%s", diff)
	}
}

func TestAServerGetsThePortsItHad(t *testing.T) {
	p := newPicker(7000, 7003)
	s := withPorts("a", hostPort)
	s.Status.Ports = []v1alpha1.ServerPortStatus{{Name: "game", Port: 7002}}
	if ports, err := p.pick(s); err != nil || ports[0] != 7002 {
		t.Errorf("got %v, %v; want the port from before, 7002", ports, err)
	}
	s = withPorts("b", hostPort)
	s.Status.Ports = []v1alpha1.ServerPortStatus{{Name: "game", Port: 7002}}
	if ports, err := p.pick(s); err != nil || ports[0] != 7000 {
		t.Errorf("got %v, %v; want 7000, because 7002 is somebody's now", ports, err)
	}
}

func TestPickKnowsFixedAndSeveralPorts(t *testing.T) {
	p := newPicker(7000, 7001)
	fixed, inner := hostPort, hostPort
	fixed.Name, fixed.HostPort = "fixed", 7000
	inner.Name, inner.Expose = "inner", v1alpha1.ExposeNone
	ports, err := p.pick(withPorts("a", inner, hostPort, fixed))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int32{0, 7001, 7000}, ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	second, third := hostPort, hostPort
	second.Name, third.Name = "second", "third"
	if ports, err := p.pick(withPorts("b", hostPort, second, third)); err == nil {
		t.Errorf("got %v for three ports out of two, want an error", ports)
	}
}

// With two nodes and two ports the fifth Server waits, and gets whichever comes
// free.
func TestAFreedPortIsTold(t *testing.T) {
	p := newPicker(7000, 7001)
	var servers []*v1alpha1.Server
	for i := range 5 {
		s := withPorts(fmt.Sprint(i), hostPort)
		servers = append(servers, s)
		if _, err := p.pick(s); err != nil {
			t.Fatal(err)
		}
	}
	waiting := types.NamespacedName{Namespace: "games", Name: "4"}
	p.wait(waiting, true)
	if p.better(servers[4], 10*time.Second) {
		t.Error("another port is said to be better while all are taken")
	}
	if told := p.hold("1", nil); len(told) != 1 || told[0] != waiting {
		t.Errorf("told %v that 7001 is free, want %v", told, waiting)
	}
	if !p.better(servers[4], 0) {
		t.Error("7001 has a node left and isn't said to be better than 7000, which has none")
	}
	if ports, err := p.pick(servers[4]); err != nil || ports[0] != 7001 {
		t.Errorf("picked %v, %v; want 7001", ports, err)
	}
	p.wait(waiting, false)
	if told := p.hold("0", nil); len(told) != 0 {
		t.Errorf("told %v, want nobody", told)
	}
	if len(p.waiting) != 0 || len(p.servers) != 3 {
		t.Errorf("the picker holds %d Servers and %d that wait, want 3 and 0", len(p.servers), len(p.waiting))
	}
}

// A port that a Pod of somebody else has on every node is left after a while.
func TestAPortThatStaysTakenIsLeft(t *testing.T) {
	p := newPicker(7000, 7001)
	s := withPorts("a", hostPort)
	if _, err := p.pick(s); err != nil {
		t.Fatal(err)
	}
	if p.better(s, retryPort-time.Second) || !p.better(s, retryPort) {
		t.Error("want another port after 30 s, not before")
	}
}

func TestHoldCountsAPodOnce(t *testing.T) {
	p := newPicker(7000, 7001)
	for range 3 {
		p.hold("a", []int32{7000, 0})
	}
	if p.uses[7000] != 1 || p.uses[0] != 0 {
		t.Errorf("uses are %v, want 7000 once", p.uses)
	}
}
