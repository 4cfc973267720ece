package publish

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

func newGame() *v1alpha1.GameType {
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Name: "duel"}}
	gt.Spec.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "game"}}
	return gt
}

func TestAServiceHasThePortsWhoseNumbersAreKnown(t *testing.T) {
	gt := newGame()
	gt.Spec.Template.Spec.Ports = []v1alpha1.ServerPort{
		{Name: "tcp", ContainerPort: 1},
		{Name: "udp", ContainerPort: 2, Protocol: v1alpha1.ServerProtocolUDP, Expose: v1alpha1.ExposeHostPort},
		{Name: "both", ContainerPort: 3, Protocol: v1alpha1.ServerProtocolTCPUDP},
		{Name: "node", Expose: v1alpha1.ExposePassthrough},
	}
	port := func(name string, number int32, protocol corev1.Protocol, target string) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: number, TargetPort: intstr.FromString(target), Protocol: protocol}
	}
	want := []corev1.ServicePort{
		port("tcp", 1, corev1.ProtocolTCP, "tcp"), port("udp", 2, corev1.ProtocolUDP, "udp"),
		port("both-tcp", 3, corev1.ProtocolTCP, "both"), port("both-udp", 3, corev1.ProtocolUDP, "both-udp"),
	}
	if diff := cmp.Diff(want, Ports(gt)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnElasticServiceFollowsSleep(t *testing.T) {
	gt := newGame()
	es := &v1alpha1.ElasticService{}
	ElasticService(gt, es, Ports(gt))
	if es.Spec.SleepAfter.Duration != 0 || es.Spec.Idle != nil {
		t.Errorf("a game that never sleeps has %+v", es.Spec)
	}
	trigger := v1alpha1.Trigger{Type: v1alpha1.TriggerHTTP}
	gt.Spec.Sleep = &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: time.Hour}, Players: new(false), Triggers: []v1alpha1.Trigger{trigger}}
	ElasticService(gt, es, Ports(gt))
	if es.Spec.SleepAfter.Duration != time.Hour || es.Spec.Idle == nil || es.Spec.Idle.Players || len(es.Spec.Idle.Triggers) != 1 {
		t.Errorf("one that sleeps by a trigger has %+v", es.Spec)
	}
	gt.Spec.Sleep = &v1alpha1.SleepSpec{}
	ElasticService(gt, es, Ports(gt))
	if es.Spec.Idle == nil || !es.Spec.Idle.Players || len(es.Spec.Idle.Triggers) != 0 {
		t.Errorf("one that sleeps has %+v", es.Spec)
	}
}

// What a GameType says of its ports, its front, who wakes it and what is held is its
// ElasticService's.
func TestAnElasticServiceHasWhatTheGameTypeSays(t *testing.T) {
	asleep := &v1alpha1.Asleep{MOTD: "Zzz"}
	gt := newGame()
	gt.Spec.Sleep = &v1alpha1.SleepSpec{Hold: v1alpha1.Hold{MaxConnections: 1}, Wake: &v1alpha1.Wake{When: "Login"}}
	gt.Spec.Front = &v1alpha1.Front{Service: "mc", Hosts: []v1alpha1.FrontHost{"play.example.com"}}
	gt.Spec.Wake = &v1alpha1.Wake{When: "Connect"}
	gt.Spec.Hold = &v1alpha1.Hold{MaxConnections: 7}
	gt.Spec.Template.Spec.Ports = []v1alpha1.ServerPort{
		{Name: "game", ContainerPort: 25565, Protocol: "minecraft", Asleep: asleep},
		{Name: "plain", ContainerPort: 1, Protocol: v1alpha1.ServerProtocolTCP},
		{Name: "both", ContainerPort: 2, Protocol: v1alpha1.ServerProtocolTCPUDP, Readiness: v1alpha1.ReadinessConnect},
		{Name: "rcon", ContainerPort: 3, Protocol: v1alpha1.ServerProtocolTCP, Publish: new(false)},
		{Name: "web", ContainerPort: 4, Protocol: "http", AbortOnClose: new(false), Publish: new(true)},
		{Name: "node", Protocol: "bedrock", Expose: v1alpha1.ExposePassthrough},
	}
	es := &v1alpha1.ElasticService{}
	es.Spec.Ports = []v1alpha1.PortSpec{{Name: "plain", Protocol: v1alpha1.ProtocolTLS}, {Name: "game", Protocol: v1alpha1.ProtocolTCP}}
	ElasticService(gt, es, Ports(gt))
	want := []v1alpha1.PortSpec{
		{Name: "game", Protocol: v1alpha1.ProtocolMinecraft, Readiness: v1alpha1.ReadinessAuto, Asleep: asleep},
		{Name: "both-tcp", Readiness: v1alpha1.ReadinessConnect},
		{Name: "web", Protocol: v1alpha1.ProtocolHTTP, Readiness: v1alpha1.ReadinessAuto, AbortOnClose: new(false)},
		{Name: "plain", Protocol: v1alpha1.ProtocolTLS},
	}
	if diff := cmp.Diff(want, es.Spec.Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(gt.Spec.Front, es.Spec.Front); diff != "" {
		t.Errorf("front (-want +got):\n%s", diff)
	}
	if es.Spec.Wake.When != "Connect" || es.Spec.Hold.MaxConnections != 7 {
		t.Errorf("wake is %+v and hold %+v", es.Spec.Wake, es.Spec.Hold)
	}
	var names []string
	for _, p := range Ports(gt) {
		names = append(names, p.Name+" "+string(p.Protocol))
	}
	if diff := cmp.Diff([]string{"game TCP", "plain TCP", "both-tcp TCP", "both-udp UDP", "web TCP"}, names); diff != "" {
		t.Errorf("the Service's ports (-want +got):\n%s", diff)
	}
	again := es.DeepCopy()
	if ElasticService(gt, again, Ports(gt)); !cmp.Equal(again, es) {
		t.Errorf("the second time it becomes\n%s", cmp.Diff(es, again))
	}
	// What it says no more goes, and what somebody else said stays.
	gt.Spec.Front, gt.Spec.Template.Spec.Ports[0].Protocol, gt.Spec.Template.Spec.Ports[0].Asleep = nil, v1alpha1.ServerProtocolTCP, nil
	ElasticService(gt, es, Ports(gt))
	if diff := cmp.Diff(want[1:], es.Spec.Ports); diff != "" || es.Spec.Front != nil {
		t.Errorf("afterwards the front is %v, and ports (-want +got):\n%s", es.Spec.Front, diff)
	}
}

// What a GameType of an earlier version couldn't say was said here.
func TestAnElasticServiceKeepsItsProtocolsAndItsFront(t *testing.T) {
	es := &v1alpha1.ElasticService{}
	es.Spec.Ports = []v1alpha1.PortSpec{{Name: "game", Protocol: v1alpha1.ProtocolMinecraft}}
	es.Spec.Front = &v1alpha1.Front{Service: "mc", Hosts: []v1alpha1.FrontHost{"play.example.com"}}
	want := es.Spec.DeepCopy()
	ElasticService(newGame(), es, nil)
	if diff := cmp.Diff(want.Ports, es.Spec.Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.Front, es.Spec.Front); diff != "" {
		t.Errorf("front (-want +got):\n%s", diff)
	}
}

// What a GameType asks for of its Service is there, and goes when it doesn't any more. What
// somebody else made of it stays.
func TestAServiceHasWhatTheGameTypeSays(t *testing.T) {
	gt := newGame()
	gt.Name, gt.Namespace = "duel", "games"
	gt.Spec.Template.Spec.Ports = []v1alpha1.ServerPort{
		{Name: "game", ContainerPort: 7777, Protocol: v1alpha1.ServerProtocolTCPUDP}, {Name: "voice", ContainerPort: 7778, Protocol: v1alpha1.ServerProtocolUDP},
	}
	gt.Spec.Service = v1alpha1.GameServiceSpec{
		Type: v1alpha1.GameServiceLoadBalancer, Labels: map[string]string{"tier": "eu"}, LoadBalancerClass: new("example.com/lb"),
		LoadBalancerSourceRanges: []string{"203.0.113.0/24"}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
		SessionAffinity: corev1.ServiceAffinityClientIP, NodePorts: []v1alpha1.GameNodePort{{Name: "game", NodePort: 30777}},
	}
	s := &corev1.Service{}
	s.Name, s.Namespace, s.Labels = "duel", "games", map[string]string{"theirs": "1"}
	s.Spec.HealthCheckNodePort = 31000
	Service(gt, Ports(gt), s, nil)
	spec := s.Spec
	if *spec.LoadBalancerClass != "example.com/lb" || !slices.Equal(spec.LoadBalancerSourceRanges, []string{"203.0.113.0/24"}) ||
		spec.ExternalTrafficPolicy != "Local" || spec.SessionAffinity != "ClientIP" || s.Labels["tier"] != "eu" || s.Labels["theirs"] != "1" {
		t.Errorf("the Service is %+v with the labels %v", spec, s.Labels)
	}
	var nodePorts []int32
	for _, p := range spec.Ports {
		nodePorts = append(nodePorts, p.NodePort)
	}
	if want := []int32{30777, 30777, 0}; !slices.Equal(nodePorts, want) {
		t.Errorf("the node ports are %v, want %v", nodePorts, want)
	}
	if got := Address(gt, s); got != "" {
		t.Errorf("before its load balancer has an address the game's is %q", got)
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}
	if got := Address(gt, s); got != "203.0.113.9" {
		t.Errorf("the game's address is %q", got)
	}

	gt.Spec.Service = v1alpha1.GameServiceSpec{Type: v1alpha1.GameServiceLoadBalancer}
	s.Spec.PublishNotReadyAddresses = true
	Service(gt, Ports(gt), s, nil)
	if s.Spec.LoadBalancerSourceRanges != nil || s.Spec.ExternalTrafficPolicy != "" || s.Spec.SessionAffinity != "" || s.Labels["tier"] != "" {
		t.Errorf("what isn't asked for any more stays: %+v with the labels %v", s.Spec, s.Labels)
	}
	if s.Labels["theirs"] != "1" || !s.Spec.PublishNotReadyAddresses || s.Spec.HealthCheckNodePort != 31000 {
		t.Errorf("what somebody else made is gone: %+v with the labels %v", s.Spec, s.Labels)
	}
	gt.Spec.Service.Type = v1alpha1.GameServiceClusterIP
	Service(gt, Ports(gt), s, nil)
	if got := Address(gt, s); got != "duel.games.svc" {
		t.Errorf("inside the cluster the game's address is %q", got)
	}
	gt.Spec.Front = &v1alpha1.Front{Service: "mc", Hosts: []v1alpha1.FrontHost{"duel.example.com"}}
	if got := Address(gt, s); got != "duel.example.com" {
		t.Errorf("at a front the game's address is %q", got)
	}
}

// A changed port leaves the old one to those who came by it, for as long as they play.
func TestAnUpdateOfPortsLeavesPlayersTheirs(t *testing.T) {
	spec := func(number int32, own ...corev1.ContainerPort) v1alpha1.ServerSpec {
		gt := newGame()
		gt.Spec.Template.Spec.Template.Spec.Containers[0].Ports = own
		gt.Spec.Template.Spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: number, Protocol: v1alpha1.ServerProtocolUDP}}
		return gt.Spec.Template.Spec
	}
	gt := newGame()
	gt.Spec.Template.Spec = spec(7778)
	was := []corev1.ServicePort{{Name: "game", Port: 7777, Protocol: corev1.ProtocolUDP, NodePort: 30777, TargetPort: intstr.FromInt32(7777)}}
	before := spec(7777)
	old := OldPorts(&before)

	udp := func(name string, number, nodePort int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: number, Protocol: corev1.ProtocolUDP, NodePort: nodePort, TargetPort: intstr.FromString("game")}
	}
	during := PlanPorts(gt, Ports(gt), corev1.ServiceTypeNodePort, was, old)
	if diff := cmp.Diff([]corev1.ServicePort{udp("game-7778", 7778, 0), udp("game", 7777, 30777)}, during); diff != "" {
		t.Errorf("while somebody plays on the old version (-want +got):\n%s", diff)
	}
	during[0].NodePort = 31000 // the API server's
	if diff := cmp.Diff([]corev1.ServicePort{udp("game-7778", 7778, 31000), udp("game", 7777, 30777)}, PlanPorts(gt, Ports(gt), corev1.ServiceTypeNodePort, during, old)); diff != "" {
		t.Errorf("in the next pass (-want +got):\n%s", diff)
	}
	after := PlanPorts(gt, Ports(gt), corev1.ServiceTypeNodePort, during, nil)
	if diff := cmp.Diff([]corev1.ServicePort{udp("game-7778", 7778, 30777)}, after); diff != "" {
		t.Errorf("once they have left (-want +got):\n%s", diff)
	}
	// Nobody played: nothing has to stay.
	if diff := cmp.Diff([]corev1.ServicePort{udp("game", 7778, 30777)}, PlanPorts(gt, Ports(gt), corev1.ServiceTypeNodePort, was, nil)); diff != "" {
		t.Errorf("without old Servers (-want +got):\n%s", diff)
	}
	// A port that is asked for by its number waits until the old one has left it.
	gt.Spec.Service.NodePorts = []v1alpha1.GameNodePort{{Name: "game", NodePort: 30777}}
	if got := PlanPorts(gt, Ports(gt), corev1.ServiceTypeNodePort, was, old)[0].NodePort; got != 0 {
		t.Errorf("the new port has node port %d, which the old one has", got)
	}
	// A port that has another name in old Pods is found there by its number.
	renamed := []OldPort{{number: 7778, transport: corev1.ProtocolUDP, target: intstr.FromString("play")}}
	if got := PlanPorts(gt, Ports(gt), corev1.ServiceTypeClusterIP, []corev1.ServicePort{udp("play", 7778, 0)}, renamed); len(got) != 1 || got[0].Name != "play" || got[0].TargetPort != intstr.FromInt32(7778) {
		t.Errorf("a renamed port is %+v", got)
	}
	// What both speak is said of both.
	gt.Spec.Template.Spec.Ports[0].Protocol = "bedrock"
	if specs := portSpecs(gt, during); len(specs) != 2 || specs[0].Name != "game-7778" || specs[1].Name != "game" {
		t.Errorf("the ports' settings are %+v", specs)
	}

	// The front leads to the new version's port, by whatever name.
	gt.Spec.Template.Spec.Ports[0].Protocol = "minecraft"
	gt.Spec.Front = &v1alpha1.Front{Service: "mc", TargetPort: "game"}
	tcp := []corev1.ServicePort{{Name: "game-7778", Port: 7778, Protocol: corev1.ProtocolTCP}, {Name: "game", Port: 7777, Protocol: corev1.ProtocolTCP}}
	for named, want := range map[string]string{"game": "game-7778", "": "game-7778"} {
		gt.Spec.Front.TargetPort = named
		if got := frontTarget(gt, tcp); got != want {
			t.Errorf("a front that names %q leads to %q, want %q", named, got, want)
		}
	}
	gt.Spec.Front.TargetPort = ""
	if got := frontTarget(gt, tcp[:1]); got != "" {
		t.Errorf("a front that names none, of the only port, leads to %q", got)
	}

	// A template's own ports may have the name, or name the port otherwise.
	for name, c := range map[string]struct {
		own  corev1.ContainerPort
		want intstr.IntOrString
	}{
		"another port has the name": {corev1.ContainerPort{Name: "game", ContainerPort: 80}, intstr.FromInt32(7777)},
		"it has a name of its own":  {corev1.ContainerPort{Name: "play", ContainerPort: 7777, Protocol: corev1.ProtocolUDP}, intstr.FromString("play")},
		"it has none":               {corev1.ContainerPort{ContainerPort: 7777, Protocol: corev1.ProtocolUDP}, intstr.FromInt32(7777)},
		"the other transport's":     {corev1.ContainerPort{ContainerPort: 7777}, intstr.FromString("game")},
	} {
		s := spec(7777, c.own)
		if got := targetPort(&s, &s.Ports[0], corev1.ProtocolUDP); got != c.want {
			t.Errorf("%s: the target port is %s, want %s", name, got.String(), c.want.String())
		}
	}
}

func TestAnElasticServiceIsKeptAwakeAsItsGame(t *testing.T) {
	gt := newGame()
	gt.Spec.Awake = []v1alpha1.TimeWindow{{Cron: "0 18 * * FRI", TimeZone: "Europe/Berlin", Duration: metav1.Duration{Duration: time.Hour}}}
	gt.Spec.WakeWith = []string{"database"}
	gt.Annotations = map[string]string{wellknown.KeepAwakeUntilAnnotation: "2026-11-27T18:00:00Z", wellknown.KeepAsleepUntilAnnotation: "2026-11-25T18:00:00Z"}
	es := &v1alpha1.ElasticService{}
	ElasticService(gt, es, Ports(gt))
	if diff := cmp.Diff(gt.Spec.WakeWith, es.Spec.WakeWith); diff != "" {
		t.Errorf("it wakes with (-want +got): %s", diff)
	}
	if diff := cmp.Diff(gt.Spec.Awake, es.Spec.Awake); diff != "" {
		t.Errorf("windows (-want +got):\n%s", diff)
	}
	until := func() string { return es.Annotations[wellknown.KeepAwakeUntilAnnotation] }
	if until() != "2026-11-27T18:00:00Z" {
		t.Errorf("it is kept awake until %q", until())
	}
	asleep := func() string { return es.Annotations[wellknown.KeepAsleepUntilAnnotation] }
	if asleep() != "2026-11-25T18:00:00Z" {
		t.Errorf("it is kept asleep until %q", asleep())
	}
	// What the game doesn't say any more goes.
	gt.Spec.Awake, gt.Annotations = nil, nil
	ElasticService(gt, es, Ports(gt))
	if asleep() != "" {
		t.Errorf("it is kept asleep until %q, though the game doesn't say so", asleep())
	}
	if len(es.Spec.Awake) > 0 || until() != "" {
		t.Errorf("it has %+v, and is kept awake until %q, though the game says neither", es.Spec.Awake, until())
	}
	// What somebody else says to the ElasticService stays.
	metav1.SetMetaDataAnnotation(&es.ObjectMeta, wellknown.KeepAwakeUntilAnnotation, "2026-11-28T18:00:00Z")
	ElasticService(gt, es, Ports(gt))
	if until() != "2026-11-28T18:00:00Z" {
		t.Errorf("somebody's own annotation became %q", until())
	}
}
