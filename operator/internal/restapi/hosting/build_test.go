package hosting

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// gameType is a game with these ports.
func gameType(ports ...v1alpha1.ServerPort) *v1alpha1.GameType {
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "chess"}}
	gt.Spec.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "log", Image: "log:1"}, {Name: "game", Image: "game:1"}}
	gt.Spec.Template.Spec.GameContainer = "game"
	gt.Spec.Template.Spec.Ports = ports
	return gt
}

func TestNumbersAndNames(t *testing.T) {
	for name, want := range map[string]int64{
		"server-1": 1, "server-9007199254740991": MaxID,
		"server-0": 0, "server-01": 0, "server--1": 0, "server-+1": 0, "server-": 0, "server-x": 0, "server-9007199254740992": 0, "lobby": 0, "Server-1": 0,
	} {
		if id, ok := ID(name); ok != (want > 0) || ok && id != want {
			t.Errorf("%s is the name of server %d, %v; want %d", name, id, ok, want)
		}
	}
}

func TestTheGameHasTheMemoryThatIsAskedFor(t *testing.T) {
	gt := gameType(v1alpha1.ServerPort{Name: "game", ContainerPort: 1})
	want := Want{RAM: 3, Disk: 7, Game: "chess"}
	s := buildServer("games", 5, want, gt)
	for _, c := range s.Spec.Template.Spec.Containers {
		if got := c.Resources.Limits.Memory().String(); (got == "3Gi") != (c.Name == "game") {
			t.Errorf("container %s has %s of memory", c.Name, got)
		}
	}
	if diff := cmp.Diff(want, wantOf(s)); diff != "" {
		t.Errorf("what was asked for isn't read back (-want +got):\n%s", diff)
	}
	if gt.Spec.Template.Spec.Template.Spec.Containers[1].Resources.Limits != nil {
		t.Error("the game's own template was changed")
	}
	if d := s.Spec.Storage; len(d) != 1 || d[0].MountPath != "/data" || d[0].OnDelete != v1alpha1.StorageRetain {
		t.Errorf("a game without a disk gets %+v", d)
	}
}

func TestAServerIsCopiedAsItsGameSays(t *testing.T) {
	gt := gameType(v1alpha1.ServerPort{Name: "game", ContainerPort: 1})
	if s := buildServer("games", 5, Want{RAM: 3, Disk: 7, Game: "chess"}, gt); s.Spec.Backup != nil {
		t.Errorf("it has copies made that nobody asked for: %+v", s.Spec.Backup)
	}
	gt.Spec.Backup = &v1alpha1.BackupSpec{To: v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "copies"}}, OnSleep: new(true)}
	s := buildServer("games", 5, Want{RAM: 3, Disk: 7, Game: "chess"}, gt)
	if diff := cmp.Diff(gt.Spec.Backup, s.Spec.Backup); diff != "" {
		t.Errorf("its copies (-want +got):\n%s", diff)
	}
	if s.Spec.Backup == gt.Spec.Backup {
		t.Error("a change of the server's copies would change the game's")
	}
}

func TestThePrimaryPortIsThePlayers(t *testing.T) {
	hidden := new(false)
	for name, c := range map[string]struct {
		ports []v1alpha1.ServerPort
		want  int
	}{
		"the first":              {[]v1alpha1.ServerPort{{Name: "a", ContainerPort: 1}, {Name: "b", ContainerPort: 2}}, 0},
		"the one of that name":   {[]v1alpha1.ServerPort{{Name: "a", ContainerPort: 1}, {Name: "primary", ContainerPort: 2}}, 1},
		"none that nobody sees":  {[]v1alpha1.ServerPort{{Name: "metrics", ContainerPort: 1, Publish: hidden}, {Name: "b", ContainerPort: 2}}, 1},
		"none that is asked for": {[]v1alpha1.ServerPort{{Name: "rcon", ContainerPort: 1}, {Name: "b", ContainerPort: 2}}, 1},
		"none without a number":  {[]v1alpha1.ServerPort{{Name: "a"}, {Name: "b", ContainerPort: 2}}, 1},
		"none at all":            {nil, -1},
	} {
		if got := portOf(&v1alpha1.ServerSpec{Ports: c.ports}, Primary); got != c.want {
			t.Errorf("%s: port %d, want %d", name, got, c.want)
		}
	}
}

func TestAServerHasANameOfItsOwnAtAFront(t *testing.T) {
	got := hosts("server-7", []v1alpha1.FrontHost{"play.example.com", "*.play.example.com", "*", "eu.example.com"})
	if diff := cmp.Diff([]v1alpha1.FrontHost{"server-7.play.example.com", "server-7.eu.example.com"}, got); diff != "" {
		t.Errorf("its names (-want +got):\n%s", diff)
	}
}

func TestNumbersOnNodesAreGivenOnRequest(t *testing.T) {
	nodePort := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}}
	fronted := gameType()
	fronted.Spec.Front = &v1alpha1.Front{}
	balanced := gameType()
	balanced.Spec.Service.Type = v1alpha1.GameServiceLoadBalancer
	for name, c := range map[string]struct {
		gt   *v1alpha1.GameType
		have *corev1.Service
		role string
		want corev1.ServiceType
	}{
		"a new server":              {gameType(), nil, "", corev1.ServiceTypeClusterIP},
		"asked for":                 {gameType(), nil, Primary, corev1.ServiceTypeNodePort},
		"kept":                      {gameType(), nodePort, "", corev1.ServiceTypeNodePort},
		"at a front":                {fronted, nil, Primary, corev1.ServiceTypeClusterIP},
		"a console beside a front":  {fronted, nil, RCON, corev1.ServiceTypeNodePort},
		"at its own load balancer":  {balanced, nil, "", corev1.ServiceTypeLoadBalancer},
		"asked for behind balancer": {balanced, nil, Primary, corev1.ServiceTypeLoadBalancer},
	} {
		if got := serviceType(c.gt, c.have, c.role); got != c.want {
			t.Errorf("%s: a Service of type %s, want %s", name, got, c.want)
		}
	}
}

func TestTheStateIsWhatAPersonWouldSay(t *testing.T) {
	stopped, runs := new(false), new(true)
	for name, c := range map[string]struct {
		running *bool
		state   v1alpha1.ServerState
		phase   v1alpha1.Phase
		deleted bool
		want    string
		asleep  bool
	}{
		"awake":                 {runs, v1alpha1.ServerReady, v1alpha1.PhaseAwake, false, "Ready", false},
		"asleep":                {runs, v1alpha1.ServerStopped, v1alpha1.PhaseAsleep, false, Asleep, true},
		"waking":                {runs, v1alpha1.ServerStarting, v1alpha1.PhaseWaking, false, Waking, false},
		"broken at its wake":    {runs, v1alpha1.ServerUnhealthy, v1alpha1.PhaseWaking, false, "Unhealthy", false},
		"stopped":               {stopped, v1alpha1.ServerStopped, v1alpha1.PhaseAsleep, false, "Stopped", false},
		"stopping with players": {stopped, v1alpha1.ServerDraining, v1alpha1.PhaseAsleep, false, "Draining", false},
		"deleted":               {runs, v1alpha1.ServerDraining, v1alpha1.PhaseAwake, true, Deleting, false},
	} {
		s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: "server-1", Labels: map[string]string{wellknown.HostedGameLabel: "chess"}}}
		s.Spec.Running, s.Status.State = c.running, c.state
		if c.deleted {
			s.DeletionTimestamp = &metav1.Time{}
			*s.DeletionTimestamp = metav1.Now()
		}
		es := &v1alpha1.ElasticService{Status: v1alpha1.ElasticServiceStatus{Phase: c.phase}}
		if v := view(s, es, nil, time.Now()); v.State != c.want || v.Asleep != c.asleep {
			t.Errorf("%s: state %s, asleep %v; want %s, %v", name, v.State, v.Asleep, c.want, c.asleep)
		}
	}
}

// A port that players don't use stays so, whatever becomes of its game's template, and needn't be the
// last one.
func TestHiddenPortsStayHidden(t *testing.T) {
	hidden := v1alpha1.ServerPort{Name: "query", ContainerPort: 1, Publish: new(false)}
	gt := gameType(hidden, v1alpha1.ServerPort{Name: "game", ContainerPort: 2})
	s := buildServer("games", 1, Want{RAM: 1, Disk: 1, Game: "chess"}, gt)
	for name, now := range map[string][]v1alpha1.ServerPort{
		"as it was": gt.Spec.Template.Spec.Ports,
		"renamed":   {{Name: "stats", ContainerPort: 1, Publish: new(false)}, {Name: "game", ContainerPort: 2}},
		"gone":      {{Name: "game", ContainerPort: 2}},
	} {
		shownAs := gt.DeepCopy()
		shownAs.Spec.Template.Spec = *s.Spec.DeepCopy()
		settle(shownAs.Spec.Template.Spec.Ports, now, nil)
		svc := buildService(s, shownAs, corev1.ServiceTypeNodePort, nil, nil)
		if len(svc.Spec.Ports) != 1 || svc.Spec.Ports[0].Name != "game" {
			t.Fatalf("%s: the Service has the ports %+v", name, svc.Spec.Ports)
		}
		svc.Spec.Ports[0].NodePort = 30001
		if v := view(s, nil, svc, time.Now()); v.Ports[Primary] != 30001 {
			t.Errorf("%s: its ports are %v", name, v.Ports)
		}
	}
}

// Who may come to a server's load balancer is what its game says now. Whose load balancer it is can't be
// changed once it is one.
func TestALoadBalancerIsAsItsGameSays(t *testing.T) {
	first, second := new("example.com/first"), new("example.com/second")
	balancer := func(class *string) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: class, LoadBalancerSourceRanges: []string{"198.51.100.0/24"}}}
	}
	gt := gameType(v1alpha1.ServerPort{Name: "game", ContainerPort: 1})
	gt.Spec.Service.Type, gt.Spec.Service.LoadBalancerClass = v1alpha1.GameServiceLoadBalancer, second
	gt.Spec.Service.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
	s := buildServer("games", 1, Want{RAM: 1, Disk: 1, Game: "chess"}, gt)
	for name, c := range map[string]struct {
		kind   corev1.ServiceType
		have   *corev1.Service
		class  *string
		ranges []string
	}{
		"a new one":                {corev1.ServiceTypeLoadBalancer, nil, second, gt.Spec.Service.LoadBalancerSourceRanges},
		"one that had node ports":  {corev1.ServiceTypeLoadBalancer, &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}}, second, gt.Spec.Service.LoadBalancerSourceRanges},
		"one of another class":     {corev1.ServiceTypeLoadBalancer, balancer(first), first, gt.Spec.Service.LoadBalancerSourceRanges},
		"one of the cluster's own": {corev1.ServiceTypeLoadBalancer, balancer(nil), nil, gt.Spec.Service.LoadBalancerSourceRanges},
		"node ports":               {corev1.ServiceTypeNodePort, nil, nil, nil},
		"one that was a balancer":  {corev1.ServiceTypeNodePort, balancer(first), nil, nil},
		"the cluster's alone":      {corev1.ServiceTypeClusterIP, nil, nil, nil},
	} {
		got := buildService(s, gt, c.kind, nil, c.have).Spec
		if diff := cmp.Diff(c.class, got.LoadBalancerClass); diff != "" {
			t.Errorf("%s: its class (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(c.ranges, got.LoadBalancerSourceRanges); diff != "" {
			t.Errorf("%s: who may come (-want +got):\n%s", name, diff)
		}
	}
}

// Whatever somebody made of a server's Service, it is shown as it is.
func TestAStrangeServiceIsShown(t *testing.T) {
	s := buildServer("games", 1, Want{RAM: 1, Disk: 1, Game: "chess"}, gameType(v1alpha1.ServerPort{Name: "game", ContainerPort: 2}))
	svc := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Name: "web", Port: 80, NodePort: 30002}}}}
	if diff := cmp.Diff(map[string]int32{"web": 30002}, view(s, nil, svc, time.Now()).Ports); diff != "" {
		t.Errorf("its ports (-want +got):\n%s", diff)
	}
}
