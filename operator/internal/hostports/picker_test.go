package hostports

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

// inOrder is a picker of numbers from 7000 that leaves nothing to chance.
func inOrder(high int32, services UDPServices) *Picker {
	p := NewPicker(7000, high, services, time.Now)
	p.chance = func(int32) int32 { return 0 }
	return p
}

func TestEachPortIsUsedAsOftenAsAnyOther(t *testing.T) {
	p := inOrder(7003, numbers{})
	uses := map[int32]int{}
	for i := range 10 {
		ports, err := p.Pick(withPorts(fmt.Sprint(i), hostPort))
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
	p := inOrder(7003, numbers{})
	s := withPorts("a", hostPort)
	s.Status.Ports = []v1alpha1.ServerPortStatus{{Name: "game", Port: 7002}}
	if ports, err := p.Pick(s); err != nil || ports[0] != 7002 {
		t.Errorf("got %v, %v; want the port from before, 7002", ports, err)
	}
	s = withPorts("b", hostPort)
	s.Status.Ports = []v1alpha1.ServerPortStatus{{Name: "game", Port: 7002}}
	if ports, err := p.Pick(s); err != nil || ports[0] != 7000 {
		t.Errorf("got %v, %v; want 7000, because 7002 is somebody's now", ports, err)
	}
}

func TestPickKnowsFixedAndSeveralPorts(t *testing.T) {
	p := inOrder(7001, numbers{})
	fixed, inner := hostPort, hostPort
	fixed.Name, fixed.HostPort = "fixed", 7000
	inner.Name, inner.Expose = "inner", v1alpha1.ExposeNone
	ports, err := p.Pick(withPorts("a", inner, hostPort, fixed))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int32{0, 7001, 7000}, ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	second, third := hostPort, hostPort
	second.Name, third.Name = "second", "third"
	if ports, err := p.Pick(withPorts("b", hostPort, second, third)); err == nil {
		t.Errorf("got %v for three ports out of two, want an error", ports)
	}
}

// With two nodes and two ports the fifth Server waits, and gets whichever comes
// free.
func TestAFreedPortIsTold(t *testing.T) {
	p := inOrder(7001, numbers{})
	var servers []*v1alpha1.Server
	for i := range 5 {
		s := withPorts(fmt.Sprint(i), hostPort)
		servers = append(servers, s)
		if _, err := p.Pick(s); err != nil {
			t.Fatal(err)
		}
	}
	waiting := types.NamespacedName{Namespace: "games", Name: "4"}
	p.Wait(waiting, true)
	if p.Better(servers[4], false) {
		t.Error("another port is said to be better while all are taken")
	}
	if waiters := p.Hold("1", nil); len(waiters) != 1 || waiters[0] != waiting {
		t.Errorf("told %v that 7001 is free, want %v", waiters, waiting)
	}
	if !p.Better(servers[4], false) {
		t.Error("7001 has a node left and isn't said to be better than 7000, which has none")
	}
	if ports, err := p.Pick(servers[4]); err != nil || ports[0] != 7001 {
		t.Errorf("picked %v, %v; want 7001", ports, err)
	}
	p.Wait(waiting, false)
	if waiters := p.Hold("0", nil); len(waiters) != 0 {
		t.Errorf("told %v, want nobody", waiters)
	}
	if len(p.waiting) != 0 || len(p.servers) != 3 {
		t.Errorf("the picker holds %d Servers and %d that wait, want 3 and 0", len(p.servers), len(p.waiting))
	}
}

// A stranger's Pods, a DaemonSet's say, have a number on every node. It is refused once,
// and the next Pod gets another one; no other Server is given it meanwhile, though it
// looks as if nobody had it.
func TestAPortThatAStrangerHasIsLeft(t *testing.T) {
	p := inOrder(7003, numbers{})
	now := time.Now()
	p.now = func() time.Time { return now }
	s := withPorts("a", hostPort)
	ports, err := p.Pick(s)
	if err != nil || p.Better(s, false) || !p.Better(s, true) {
		t.Fatalf("picked %v, %v; want another number to be better after the Pod has waited in vain, and not before", ports, err)
	}
	stranger := ports[0]
	p.Refuse(s)
	s.Status.Ports = []v1alpha1.ServerPortStatus{{Name: "game", Port: stranger}}
	for i := range 12 {
		server := withPorts(fmt.Sprint(i), hostPort)
		if i == 0 {
			server = s
		}
		if ports, err := p.Pick(server); err != nil || ports[0] == stranger {
			t.Fatalf("Server %d gets %v, %v; want anything but %d", i, ports, err, stranger)
		}
	}
	now = now.Add(refusedFor)
	if ports, err := p.Pick(withPorts("later", hostPort)); err != nil || ports[0] != stranger {
		t.Errorf("picked %v, %v after %s; want %d, which nobody of ours has", ports, err, refusedFor, stranger)
	}
}

// Where all numbers have been refused a Pod waits for one of them, and isn't replaced for
// ever.
func TestAPodIsNotReplacedWhereAllPortsAreTaken(t *testing.T) {
	p := NewPicker(7000, 7009, numbers{}, time.Now)
	for n := range 2 { // as on two nodes
		for number := p.low; number <= p.high; number++ {
			p.Hold(types.UID(fmt.Sprintf("%d-%d", n, number)), []int32{number})
		}
	}
	s := withPorts("a", hostPort)
	seen, patience := map[int32]bool{}, time.Duration(0)
	for {
		ports, err := p.Pick(s)
		if err != nil {
			t.Fatal(err)
		}
		seen[ports[0]] = true
		if !p.Better(s, true) {
			break
		}
		if len(seen) > 10 {
			t.Fatal("the Pod is replaced again and again")
		}
		if waits := p.Patience(s.UID); waits < patience {
			t.Errorf("waits for %s, after %s before", waits, patience)
		} else {
			patience = waits
		}
		p.Refuse(s)
	}
	if len(seen) != 10 || patience != 16*FirstPatience {
		t.Errorf("tried %d numbers, the last but one for %s; want each of 10 once, and %s", len(seen), patience, 16*FirstPatience)
	}
	freed := p.low
	if p.servers[s.UID][0] == freed {
		freed++
	}
	if p.Hold(types.UID(fmt.Sprintf("0-%d", freed)), nil); !p.Better(s, false) {
		t.Error("a number with a node left isn't better")
	}
	number := p.servers[s.UID][0]
	p.Placed(s.UID)
	if got := p.Patience(s.UID); got != FirstPatience || len(p.tries) != 0 {
		t.Errorf("waits for %s after it ran, with %d Servers remembered; want %s and none", got, len(p.tries), FirstPatience)
	}
	if p.avoided(number) {
		t.Errorf("%d is avoided though a node had it free", number)
	}
}

// Which of those that are used as often is left to chance: what a stranger has is met by
// few.
func TestAnyOfTheLeastUsedPortsIsPicked(t *testing.T) {
	seen := map[int32]bool{}
	for range 200 {
		ports, err := NewPicker(7000, 7003, numbers{}, time.Now).Pick(withPorts("a", hostPort))
		if err != nil {
			t.Fatal(err)
		}
		seen[ports[0]] = true
	}
	if len(seen) != 4 {
		t.Errorf("200 Servers got %v, want each of four numbers", seen)
	}
}

func TestHoldCountsAPodOnce(t *testing.T) {
	p := inOrder(7001, numbers{})
	for range 3 {
		p.Hold("a", []int32{7000, 0})
	}
	if p.uses[7000] != 1 || p.uses[0] != 0 {
		t.Errorf("uses are %v, want 7000 once", p.uses)
	}
}

// numbers are UDP ports of Services: of ElasticServices where true.
type numbers map[int32]bool

func (n numbers) Elastic(number int32) bool { return n[number] }

func (n numbers) Any(number int32) bool {
	_, is := n[number]
	return is
}

func TestAHostPortEndsNobodysSession(t *testing.T) {
	udp, both := hostPort, hostPort
	udp.Protocol, both.Protocol = v1alpha1.ServerProtocolUDP, v1alpha1.ServerProtocolTCPUDP
	cases := map[string]struct {
		services numbers
		port     v1alpha1.ServerPort
		before   int32
		// uses are how many Servers have a number already.
		uses map[int32]int
		want int32
	}{
		"a UDP port of an ElasticService is passed over":                     {services: numbers{7000: true}, port: udp, want: 7001},
		"and so it is over both transports":                                  {services: numbers{7000: true}, port: both, want: 7001},
		"it does no harm over TCP":                                           {services: numbers{7000: true}, port: hostPort, want: 7000},
		"a port that it has become is given up":                              {services: numbers{7002: true}, port: udp, before: 7002, want: 7000},
		"it is passed over though all others are used":                       {services: numbers{7002: true}, port: udp, uses: map[int32]int{7000: 2, 7001: 1}, want: 7001},
		"a port of another Service is passed over among equals":              {services: numbers{7000: false}, port: udp, want: 7001},
		"but not where all others are used":                                  {services: numbers{7000: false}, port: udp, uses: map[int32]int{7001: 1, 7002: 1}, want: 7000},
		"the least used one counts first":                                    {services: numbers{7002: false}, port: udp, uses: map[int32]int{7000: 2, 7001: 1, 7002: 1}, want: 7001},
		"it is picked where there is no other number":                        {services: numbers{7000: true, 7001: true, 7002: true}, port: udp, uses: map[int32]int{7000: 1}, want: 7001},
		"where all numbers are other Services' the least used one is picked": {services: numbers{7000: false, 7001: false, 7002: false}, port: udp, uses: map[int32]int{7000: 1}, want: 7001},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := inOrder(7002, tc.services)
			for number, uses := range tc.uses {
				for i := range uses {
					p.Hold(types.UID(fmt.Sprint(number, "-", i)), []int32{number})
				}
			}
			s := withPorts("a", tc.port)
			if tc.before != 0 {
				s.Status.Ports = []v1alpha1.ServerPortStatus{{Name: tc.port.Name, Port: tc.before}}
			}
			ports, err := p.Pick(s)
			if err != nil || ports[0] != tc.want {
				t.Errorf("picked %v, %v; want %d", ports, err, tc.want)
			}
		})
	}
}

// A Pod is replaced for another number only where there is one.
func TestAClashIsOneWhereThereIsAnotherNumber(t *testing.T) {
	udp, own := hostPort, hostPort
	udp.Protocol, own.Protocol, own.HostPort = v1alpha1.ServerProtocolUDP, v1alpha1.ServerProtocolUDP, 7001
	cases := map[string]struct {
		services numbers
		port     v1alpha1.ServerPort
		want     bool
	}{
		"the number is an ElasticService's":       {numbers{7001: true}, udp, true},
		"so are all others":                       {numbers{7000: true, 7001: true, 7002: true}, udp, false},
		"another number is an ElasticService's":   {numbers{7000: true}, udp, false},
		"it does no harm over TCP":                {numbers{7001: true}, hostPort, false},
		"the number is the Server's owner's will": {numbers{7001: true}, own, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := inOrder(7002, tc.services).Clashes(withPorts("a", tc.port), []int32{7001}); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// A Pod that waits isn't replaced again and again for a number that it can't get.
func TestAPortOfAnElasticServiceIsNoBetter(t *testing.T) {
	udp := hostPort
	udp.Protocol = v1alpha1.ServerProtocolUDP
	p := inOrder(7001, numbers{7001: true})
	for _, name := range []string{"a", "b", "c"} {
		if _, err := p.Pick(withPorts(name, udp)); err != nil {
			t.Fatal(err)
		}
	}
	if p.Better(withPorts("c", udp), true) {
		t.Error("an ElasticService's UDP port is said to be better than one that is taken")
	}
}
