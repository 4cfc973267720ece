package slim

import (
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

func server(name string) *v1alpha1.Server {
	const fleet = "lobby"
	return &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "games", Name: name, UID: types.UID(name),
			Labels:          map[string]string{wellknown.FleetLabel: fleet},
			Annotations:     map[string]string{wellknown.TemplateHashAnnotation: "1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "dormouse.dev/v1alpha1", Kind: "Fleet", Name: fleet, UID: types.UID(fleet), Controller: new(true)}},
			Finalizers:      []string{wellknown.DeletionGuardFinalizer},
		},
		Spec: v1alpha1.ServerSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game:1"}}}},
			Ports:    []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7000}},
		},
		Status: v1alpha1.ServerStatus{
			PodIP: "10.0.0.1", Address: "10.0.0.1",
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "OK", Message: "The game takes players."}},
		},
	}
}

func slimmed[T client.Object](t *testing.T, transform func(any) (any, error), o T) T {
	t.Helper()
	want := o.DeepCopyObject()
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "somebody"}})
	for range 2 { // a cache may do it again
		if _, err := transform(o); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, any(o)); diff != "" {
		t.Errorf("it isn't what it was but for managedFields (-want +got):\n%s", diff)
	}
	return o
}

func TestServersOfAFleetShareWhatIsEqual(t *testing.T) {
	first, second := slimmed(t, Server, server("lobby-1")), slimmed(t, Server, server("lobby-2"))
	if &first.Spec.Template.Spec.Containers[0] != &second.Spec.Template.Spec.Containers[0] || &first.Spec.Ports[0] != &second.Spec.Ports[0] {
		t.Error("each has a spec of its own")
	}
	if &first.OwnerReferences[0] != &second.OwnerReferences[0] || &first.Finalizers[0] != &second.Finalizers[0] {
		t.Error("each has metadata of its own")
	}
	if unsafe.StringData(first.Status.Conditions[0].Message) != unsafe.StringData(second.Status.Conditions[0].Message) {
		t.Error("each has words of its own")
	}
}

func TestNoServerGetsWhatIsAnothers(t *testing.T) {
	slimmed(t, Server, server("lobby-1"))
	for name, change := range map[string]func(s *v1alpha1.Server){
		"another image":        func(s *v1alpha1.Server) { s.Spec.Template.Spec.Containers[0].Image = "game:2" },
		"drained":              func(s *v1alpha1.Server) { s.Spec.Drain = true },
		"stopped":              func(s *v1alpha1.Server) { s.Spec.Running = new(false) },
		"a label of its own":   func(s *v1alpha1.Server) { s.Labels["map"] = "desert" },
		"being deleted":        func(s *v1alpha1.Server) { s.DeletionTimestamp, s.Finalizers = new(metav1.Now()), []string{"x"} },
		"of nobody":            func(s *v1alpha1.Server) { s.OwnerReferences = nil },
		"of no finalizer":      func(s *v1alpha1.Server) { s.Finalizers = nil },
		"of another Fleet":     func(s *v1alpha1.Server) { s.OwnerReferences[0].UID = "arena" },
		"of another template":  func(s *v1alpha1.Server) { s.Annotations[wellknown.TemplateHashAnnotation] = "2" },
		"of another condition": func(s *v1alpha1.Server) { s.Status.Conditions[0].Message = "The game starts." },
	} {
		s := server("lobby-3")
		change(s)
		t.Run(name, func(t *testing.T) { slimmed(t, Server, s) })
	}
}

func TestElasticServicesShareWhatIsEqual(t *testing.T) {
	one := func(name string, more time.Duration) *v1alpha1.ElasticService {
		return &v1alpha1.ElasticService{
			ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name, Finalizers: []string{wellknown.ElasticServiceFinalizer}},
			Spec: v1alpha1.ElasticServiceSpec{
				Service: name, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
				SleepAfter: &metav1.Duration{Duration: 1 + more},
			},
			Status: v1alpha1.ElasticServiceStatus{
				AsleepRequests: &v1alpha1.AsleepRequests{Replicas: 1, CPU: resource.MustParse("100m"), Memory: resource.MustParse("64Mi")},
				Conditions:     []metav1.Condition{{Type: "Ready", Status: "True", Reason: "OK", LastTransitionTime: metav1.Unix(1e9, 0)}, {Type: "ServerUp", Message: "It sleeps."}},
			},
		}
	}
	first, second := slimmed(t, ElasticService, one("lobby", 0)), slimmed(t, ElasticService, one("arena", 0))
	if first.Spec.SleepAfter != second.Spec.SleepAfter {
		t.Error("each has a spec of its own")
	}
	if first.Status.AsleepRequests != second.Status.AsleepRequests {
		t.Error("each has requests of its own")
	}
	if &first.Status.Conditions[0] != &second.Status.Conditions[0] {
		t.Error("each has conditions of its own")
	}
	later := one("later", 0)
	later.Status.Conditions[0].LastTransitionTime = metav1.Unix(1e9+1, 0)
	slimmed(t, ElasticService, later)
	wordy := one("wordy", 0)
	wordy.Status.Conditions[1].Message = strings.Repeat("x", maxShared+1)
	before := len(states.values)
	if slimmed(t, ElasticService, wordy); len(states.values) != before {
		t.Error("a long list of conditions is kept")
	}
	large := one("large", 0)
	large.Status.AsleepRequests.CPU = resource.MustParse("100.5m")
	slimmed(t, ElasticService, large)
	slimmed(t, ElasticService, one("slow", 1))
}

func TestEndpointSlicesShareResolvers(t *testing.T) {
	one := func(name string, ready bool) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
			Ports:      []discoveryv1.EndpointPort{{Name: new("game"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(7000))}},
		}
	}
	first, second := slimmed(t, EndpointSlice, one("lobby", true)), slimmed(t, EndpointSlice, one("arena", true))
	if &first.Endpoints[0] != &second.Endpoints[0] {
		t.Error("each has endpoints of its own")
	}
	if first.Ports[0].Name != second.Ports[0].Name || first.Ports[0].Protocol != second.Ports[0].Protocol {
		t.Error("each has words of its own")
	}
	slimmed(t, EndpointSlice, one("slow", false))
	noted := one("noted", true)
	noted.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-11-26T19:47:00Z"}
	if _, err := EndpointSlice(noted); err != nil || noted.Annotations != nil {
		t.Errorf("it has the annotations %v: %v", noted.Annotations, err)
	}
	noted.Labels = map[string]string{discoveryv1.LabelManagedBy: wellknown.ManagedBy}
	noted.Annotations = map[string]string{"mesh": "somebody's"}
	if _, err := EndpointSlice(noted); err != nil || len(noted.Annotations) != 1 {
		t.Errorf("Dormouse's own has the annotations %v: %v", noted.Annotations, err)
	}
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "lobby", UID: "1"}}
	for by, want := range map[string]int{"endpointslice-controller.k8s.io": 0, wellknown.ManagedBy: 1} {
		owned := one("owned", true)
		owned.Labels, owned.OwnerReferences = map[string]string{discoveryv1.LabelManagedBy: by}, owner
		if _, err := EndpointSlice(owned); err != nil || len(owned.OwnerReferences) != want {
			t.Errorf("one that %s manages has %d owners, %v; want %d", by, len(owned.OwnerReferences), err, want)
		}
	}
}

func TestServicesShareWhatIsEqual(t *testing.T) {
	one := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name, Labels: map[string]string{"app": "lobby"}}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "lobby"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		}}
	}
	transform := func(o any) (any, error) { Service(o.(*corev1.Service)); return o, nil }
	first, second := slimmed(t, transform, one("lobby")), slimmed(t, transform, one("lobby-dormouse"))
	if reflect.ValueOf(first.Spec.Selector).Pointer() != reflect.ValueOf(second.Spec.Selector).Pointer() {
		t.Error("each has a selector of its own")
	}
	if reflect.ValueOf(first.Labels).Pointer() != reflect.ValueOf(first.Spec.Selector).Pointer() {
		t.Error("it has equal labels of its own")
	}
	if &first.Spec.IPFamilies[0] != &second.Spec.IPFamilies[0] || first.Spec.InternalTrafficPolicy != second.Spec.InternalTrafficPolicy {
		t.Error("each has words of its own")
	}
	dual := one("dual")
	dual.Spec.Selector["app"], dual.Spec.IPFamilies = "dual", append(dual.Spec.IPFamilies, corev1.IPv6Protocol)
	slimmed(t, transform, dual)
}

func TestATextIsAPartOfAnObjectsName(t *testing.T) {
	name := "lobby-dormouse-x7k2p"
	slice := slimmed(t, EndpointSlice, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Name: name, GenerateName: "lobby-dormouse-", Labels: map[string]string{discoveryv1.LabelServiceName: strings.Clone("lobby-dormouse"), "a": "another"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Service", Name: "lobby-dormouse"}, {Kind: "Service", Name: "arena"}},
	}})
	for what, text := range map[string]string{"prefix": slice.GenerateName, "label": slice.Labels[discoveryv1.LabelServiceName], "owner": slice.OwnerReferences[0].Name} {
		if unsafe.StringData(text) != unsafe.StringData(slice.Name) {
			t.Errorf("its %s is a text of its own", what)
		}
	}
}

func TestPodsAndServicesAreTheSame(t *testing.T) {
	slimmed(t, func(o any) (any, error) { Pod(o.(*corev1.Pod)); return o, nil }, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "games", Name: "lobby-1", Labels: map[string]string{wellknown.ServerLabel: "lobby-1", "mode": "duel"}, Annotations: map[string]string{"a": "b"},
		},
		Spec:   corev1.PodSpec{NodeName: "node", Containers: Containers("games/lobby", []corev1.Container{{Name: "game"}})},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	})
	slimmed(t, func(o any) (any, error) { Service(o.(*corev1.Service)); return o, nil }, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "lobby"}, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
			Ports: []corev1.ServicePort{{Name: "game", Port: 7000, Protocol: corev1.ProtocolUDP}},
		},
	})
}

// up is a Pod whose containers began to run at a second, and were restarted so often.
func up(name string, second int64, restarts int32) *corev1.Pod {
	at := metav1.Unix(1_700_000_000+second, 0)
	runs := func(name string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, Ready: true, Started: new(true), RestartCount: restarts, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name},
		Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at}, {Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at},
			},
			InitContainerStatuses: []corev1.ContainerStatus{runs("first")},
			ContainerStatuses:     []corev1.ContainerStatus{runs("game"), runs("sidecar")},
		},
	}
}

func TestPodsThatBeganInOneSecondShareTheirStatuses(t *testing.T) {
	pod := func(o any) (any, error) { Pod(o.(*corev1.Pod)); return o, nil }
	type parts struct{ conditions, init, containers bool }
	shared := func(a, b *corev1.Pod) parts {
		return parts{
			&a.Status.Conditions[0] == &b.Status.Conditions[0],
			&a.Status.InitContainerStatuses[0] == &b.Status.InitContainerStatuses[0],
			&a.Status.ContainerStatuses[0] == &b.Status.ContainerStatuses[0],
		}
	}
	one := slimmed(t, pod, up("lobby-1", 0, 0))
	for about, c := range map[string]struct {
		other *corev1.Pod
		want  parts
	}{
		"the same second":           {up("lobby-2", 0, 0), parts{conditions: true, init: true, containers: true}},
		"the next one":              {up("lobby-3", 1, 0), parts{}},
		"one that was restarted":    {up("lobby-4", 0, 1), parts{conditions: true}},
		"one that isn't ready":      {unready(up("lobby-5", 0, 0)), parts{init: true}},
		"one that ended before":     {ended(up("lobby-6", 0, 0)), parts{conditions: true, init: true}},
		"one with fewer containers": {alone(up("lobby-7", 0, 0)), parts{conditions: true, init: true}},
	} {
		if got := shared(one, slimmed(t, pod, c.other)); got != c.want {
			t.Errorf("%s: what is shared is %+v, want %+v", about, got, c.want)
		}
	}
	// What two that were restarted have said is their own.
	if got := shared(slimmed(t, pod, up("lobby-8", 5, 1)), slimmed(t, pod, up("lobby-9", 5, 1))); got != (parts{conditions: true}) {
		t.Errorf("two that were restarted share %+v, want their conditions alone", got)
	}
}

func unready(pod *corev1.Pod) *corev1.Pod {
	pod.Status.Conditions[1].Status, pod.Status.ContainerStatuses[0].Ready = corev1.ConditionFalse, false
	return pod
}

func ended(pod *corev1.Pod) *corev1.Pod {
	pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
	return pod
}

func alone(pod *corev1.Pod) *corev1.Pod {
	pod.Status.ContainerStatuses = pod.Status.ContainerStatuses[:1]
	return pod
}

func TestWordsAreSharedAfterACollectionOfGarbage(t *testing.T) {
	one := func() string { return String(strings.Clone("node-of-a-cluster")) }
	first := one()
	runtime.GC()
	runtime.GC()
	if second := one(); unsafe.StringData(first) != unsafe.StringData(second) {
		t.Error("each has a text of its own")
	}
	if long := strings.Repeat("x", maxWord+1); unsafe.StringData(String(long)) != unsafe.StringData(long) {
		t.Error("a long text is kept")
	}
	for i := range 2 * maxWords {
		String(strconv.Itoa(i))
	}
	if len(words.all) > maxWords {
		t.Errorf("%d words are kept, want %d at most", len(words.all), maxWords)
	}
}

// A list comes to the cache by way of a store of its own, which makes it small, too.
func TestNothingIsWrittenToWhatTheCacheHas(t *testing.T) {
	cached := slimmed(t, Server, server("lobby-1"))
	owner := &cached.OwnerReferences[0]
	owner.Kind = strings.Clone(owner.Kind)
	before := unsafe.StringData(owner.Kind)
	again := server("lobby-2")
	again.OwnerReferences = cached.OwnerReferences
	if _, err := Server(again); err != nil {
		t.Fatal(err)
	}
	if unsafe.StringData(owner.Kind) != before {
		t.Error("the owner of a Server in the cache is written to")
	}
}

// A large annotation isn't kept for a Fleet that may be gone.
func TestLargeAnnotationsAreNotKept(t *testing.T) {
	s := server("lobby-1")
	s.OwnerReferences[0].UID = "large"
	s.Annotations["notes"] = strings.Repeat("x", maxShared)
	slimmed(t, Server, s)
	for key := range kins.values {
		if strings.HasPrefix(key, "large") {
			t.Error("it is kept")
		}
	}
}

func TestAPoolIsBounded(t *testing.T) {
	var p Pool[int]
	for i := range 3 * kept {
		if got := p.One(string(rune(i)), i); got != i {
			t.Fatalf("%d became %d", i, got)
		}
		if len(p.values) > kept {
			t.Fatalf("%d values are kept, want %d at most", len(p.values), kept)
		}
	}
	p = Pool[int]{}
	for i := range kept {
		p.One(string(rune(i)), i)
	}
	if p.One(string(rune(0)), -1); len(p.values) != kept {
		t.Errorf("a value that changes leaves %d of %d", len(p.values), kept)
	}
}
