package setup

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/allocation/book"
	"dormouse.dev/dormouse/operator/internal/fleet"
	"dormouse.dev/dormouse/operator/internal/gameserver"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/report"
	"dormouse.dev/dormouse/operator/internal/slim"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// The objects of one Server, and of one ElasticService that sleeps, as the API server has them. In these
// texts @name stands for the object's name, @number and @uid are of its own alone, and some have the same @node.
const (
	serverText = `{"apiVersion":"dormouse.dev/v1alpha1","kind":"Server","metadata":{"name":"@name","namespace":"games","uid":"@uid","resourceVersion":"@number",
		"annotations":{"dormouse.dev/template-hash":"891cdb8df28ab098a94e793fea4153d8"},"creationTimestamp":"2026-11-26T19:47:00Z","finalizers":["dormouse.dev/deletion-guard"],
		"generation":1,"labels":{"dormouse.dev/fleet":"arena-5d8f","dormouse.dev/gametype":"arena"},
		"ownerReferences":[{"apiVersion":"dormouse.dev/v1alpha1","blockOwnerDeletion":true,"controller":true,"kind":"Fleet","name":"arena-5d8f","uid":"7630df19-73c8-4e41-aa79-001c9e2ca82c"}]},
		"spec":{"players":{"capacity":16},"ports":[{"containerPort":7000,"name":"game","protocol":"UDP","expose":"HostPort"}],"replicas":1,
		"template":{"spec":{"containers":[{"args":["--udp=7000"],"image":"registry.example/game:1","name":"game"}]}}},
		"status":{"address":"192.0.2.@node","addresses":[{"address":"10.244.0.@node","type":"PodIP"},{"address":"192.0.2.@node","type":"ExternalIP"}],"conditions":[
		{"lastTransitionTime":"2026-11-26T19:47:00Z","message":"The game takes players.","reason":"OK","status":"True","type":"Ready"},
		{"lastTransitionTime":"2026-11-26T19:47:00Z","message":"Nobody plays.","reason":"NoPlayers","status":"True","type":"DeletionAllowed"},
		{"lastTransitionTime":"2026-11-26T19:47:00Z","message":"","reason":"OK","status":"True","type":"Healthy"}],"deletionAllowed":true,
		"game":{"instance":"@pod-1","podUID":"@pod","reported":true,"sequence":1,"since":"2026-11-26T19:47:00Z","state":"Ready"},"nodeName":"node-@node","observedGeneration":1,
		"players":{"capacity":16,"current":0},"podIP":"10.244.0.@node","podName":"@name","ports":[{"name":"game","port":7@node,"protocol":"UDP"}],"replicas":1,"state":"Ready"}}`
	podText = `{"metadata":{"name":"@name","namespace":"games","uid":"@pod","resourceVersion":"@number","creationTimestamp":"2026-11-26T19:47:00Z","generation":1,
		"annotations":{"cluster-autoscaler.kubernetes.io/safe-to-evict":"true","dormouse.dev/game-container":"game","dormouse.dev/report-key":"megmtgpiil","karpenter.sh/do-not-disrupt":"false"},
		"labels":{"dormouse.dev/deletion-allowed":"true","dormouse.dev/fleet":"arena-5d8f","dormouse.dev/gametype":"arena","dormouse.dev/server":"@name"},
		"ownerReferences":[{"apiVersion":"dormouse.dev/v1alpha1","blockOwnerDeletion":true,"controller":true,"kind":"Server","name":"@name","uid":"@uid"}]},
		"spec":{"nodeName":"node-@node","containers":[{"name":"game","image":"registry.example/game:1","ports":[{"containerPort":7000,"name":"game","protocol":"UDP"}]},
		{"name":"dormouse-sidecar","image":"sidecar:1","ports":[{"containerPort":9359,"name":"dormouse","protocol":"TCP"}],"readinessProbe":{"httpGet":{"path":"/ready","port":9359}}}]},
		"status":{"phase":"Running","hostIP":"192.0.2.@node","hostIPs":[{"ip":"192.0.2.@node"}],"podIP":"10.244.0.@node","podIPs":[{"ip":"10.244.0.@node"}],"qosClass":"Burstable",
		"startTime":"2026-11-26T19:47:00Z","conditions":[
		{"lastTransitionTime":"2026-11-26T19:47:01Z","status":"True","type":"PodReadyToStartContainers"},{"lastTransitionTime":"2026-11-26T19:47:00Z","status":"True","type":"Initialized"},
		{"lastTransitionTime":"2026-11-26T19:47:02Z","status":"True","type":"Ready"},{"lastTransitionTime":"2026-11-26T19:47:02Z","status":"True","type":"ContainersReady"},
		{"lastTransitionTime":"2026-11-26T19:47:00Z","status":"True","type":"PodScheduled"}],"containerStatuses":[
		{"containerID":"containerd://@uid","image":"registry.example/game:1","imageID":"sha256:@uid","lastState":{},"name":"game","ready":true,"restartCount":0,"started":true,
		"state":{"running":{"startedAt":"2026-11-26T19:47:01Z"}}},
		{"containerID":"containerd://@pod","image":"sidecar:1","imageID":"sha256:@pod","lastState":{},"name":"dormouse-sidecar","ready":true,"restartCount":0,"started":true,
		"state":{"running":{"startedAt":"2026-11-26T19:47:01Z"}}}]}}`
	elasticText = `{"apiVersion":"dormouse.dev/v1alpha1","kind":"ElasticService","metadata":{"name":"@name","namespace":"games","uid":"@uid","resourceVersion":"@number",
		"creationTimestamp":"2026-11-26T19:47:00Z","finalizers":["dormouse.dev/elasticservice"],"generation":1},
		"spec":{"service":"@name","scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"@name"},"sleepAfter":"15m"},
		"status":{"observedGeneration":1,"mode":"Direct","phase":"Asleep","phaseSince":"2026-11-26T19:47:00.123456Z","ports":[{"name":"game","protocol":"TCP","resolverPort":@number}],
		"privateService":"@name-dormouse","readiness":"Probe","replicasBeforeSleep":1,"asleepTarget":{"apiVersion":"apps/v1","kind":"Deployment","name":"@name","replicas":1},
		"lastSleepTime":"2026-11-26T19:47:00.123456Z","lastWakeTime":"2026-11-26T19:27:00.123456Z","asleepRequests":{"cpu":"100m","memory":"64Mi"},"conditions":[@conditions]}}`
	serviceText = `{"metadata":{"name":"@name","namespace":"games","uid":"@uid","resourceVersion":"@number","creationTimestamp":"2026-11-26T19:47:00Z"},
		"spec":{"clusterIP":"10.96.0.@node","clusterIPs":["10.96.0.@node"],"internalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack",
		"ports":[{"name":"game","port":7777,"protocol":"TCP","targetPort":7777}],"selector":{"app":"@name"},"sessionAffinity":"None","type":"ClusterIP"},"status":{"loadBalancer":{}}}`
	privateText = `{"metadata":{"name":"@name-dormouse","namespace":"games","uid":"@uid","resourceVersion":"@number","creationTimestamp":"2026-11-26T19:47:00Z",
		"labels":{"app.kubernetes.io/managed-by":"dormouse","dormouse.dev/private-service":"@name"},
		"ownerReferences":[{"apiVersion":"dormouse.dev/v1alpha1","blockOwnerDeletion":true,"controller":true,"kind":"ElasticService","name":"@name","uid":"@pod"}]},
		"spec":{"clusterIP":"None","clusterIPs":["None"],"internalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack",
		"ports":[{"name":"game","port":7777,"protocol":"TCP","targetPort":7777}],"selector":{"app":"@name"},"sessionAffinity":"None","type":"ClusterIP"},"status":{"loadBalancer":{}}}`
	resolverSliceText = `{"metadata":{"name":"@name-resolver-ipv4","namespace":"games","uid":"@uid","resourceVersion":"@number","creationTimestamp":"2026-11-26T19:47:00Z","generation":1,
		"labels":{"app.kubernetes.io/managed-by":"dormouse","dormouse.dev/private-service":"@name","endpointslice.kubernetes.io/managed-by":"dormouse.dev","kubernetes.io/service-name":"@name"},
		"ownerReferences":[{"apiVersion":"dormouse.dev/v1alpha1","blockOwnerDeletion":true,"controller":true,"kind":"ElasticService","name":"@name","uid":"@pod"}]},
		"addressType":"IPv4","ports":[{"name":"game","port":@number,"protocol":"TCP"}],"endpoints":[
		{"addresses":["10.244.1.7"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"node-1","targetRef":{"kind":"Pod","name":"dormouse-resolver-1","namespace":"dormouse-system","uid":"1"}}]}`
	privateSliceText = `{"metadata":{"name":"@name-dormouse-x7k2p","generateName":"@name-dormouse-","namespace":"games","uid":"@uid","resourceVersion":"@number","creationTimestamp":"2026-11-26T19:47:00Z","generation":2,
		"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"2026-11-26T19:@numberZ"},
		"labels":{"app.kubernetes.io/managed-by":"dormouse","dormouse.dev/private-service":"@name","endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"@name-dormouse","service.kubernetes.io/headless":""},
		"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Service","name":"@name-dormouse","uid":"@pod"}]},
		"addressType":"IPv4","ports":[],"endpoints":[]}`
)

// conditionTexts are the conditions of an ElasticService that sleeps, with their messages.
var conditionTexts = [][2]string{
	{"TargetFound", "The Deployment can be scaled."},
	{"EndpointsInSync", "New clients go to the resolver."},
	{"TriggersHealthy", "The spec has no triggers."},
	{"PlayersKnown", "The spec doesn't ask for players."},
	{"IdleSignal", "Dormouse can tell whether the service is idle."},
	{"DirectGated", "Clients connect to a pod only once its readiness probe succeeds."},
	{"DrainSafe", "The target has no Servers, which alone are drained."},
	{"UDPSessionsKept", "The Service has no UDP port."},
	{"SourceIPPreserved", "The spec asks for nothing that goes by addresses."},
	{"TrafficPolicyUnsupported", "The Service's traffic policies work with this handoff."},
	{"ServerUp", "No server is wanted while the service sleeps."},
	{"FrontReady", "The spec has no front."},
	{"WakePlayersKnown", "The spec names no list of players."},
	{"AutoscalerReady", "The spec names no autoscaler."},
	{"AwakeWindowsValid", "Neither the spec nor an annotation keeps the service awake."},
	{"WakeGroupValid", "The spec names nothing that is woken with the service, and nothing that isn't asleep names it."},
	{"Ready", "The service sleeps and wakes as asked."},
}

// decoded is the object of a text with a number.
func decoded[T client.Object](tb testing.TB, o T, of string, number int) T {
	tb.Helper()
	var conditions []string
	for _, c := range conditionTexts {
		conditions = append(conditions, fmt.Sprintf(`{"type":%q,"status":"True","reason":"OK","observedGeneration":1,"lastTransitionTime":"2026-11-26T19:47:00Z","message":%q}`, c[0], c[1]))
	}
	text := strings.NewReplacer("@name", fmt.Sprintf("arena-5d8f-%05d", number), "@number", fmt.Sprint(20000+number), "@node", fmt.Sprint(100+number%100),
		"@uid", fmt.Sprintf("2beb86a3-b8df-4212-9c52-%012d", number), "@pod", fmt.Sprintf("4314b3f1-4982-4a0f-a55e-%012d", number)).
		Replace(strings.ReplaceAll(of, "@conditions", strings.Join(conditions, ",")))
	if err := json.Unmarshal([]byte(text), o); err != nil {
		tb.Fatal(err)
	}
	return o
}

// indexers are those of each kind.
type indexers struct {
	cache.Informers
	of map[reflect.Type]toolscache.Indexers
}

// kindIndexers are those of one kind.
type kindIndexers struct {
	cache.Informer
	all toolscache.Indexers
}

func (i kindIndexers) AddIndexers(more toolscache.Indexers) error {
	maps.Copy(i.all, more)
	return nil
}

func (i indexers) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return kindIndexers{all: i.kind(o)}, nil
}

func (i indexers) kind(o client.Object) toolscache.Indexers {
	kind := reflect.TypeOf(o)
	if i.of[kind] == nil {
		i.of[kind] = toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}
	}
	return i.of[kind]
}

// heap is how many bytes are live.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var is runtime.MemStats
	runtime.ReadMemStats(&is)
	return is.HeapAlloc
}

const heapObjects = 10000

// BenchmarkHeap reports how many bytes of the operator's heap each of ten thousand Servers and
// ElasticServices takes with what belongs to it, and its place in the allocation book: B/object.
func BenchmarkHeap(b *testing.B) {
	all := indexers{of: map[reflect.Type]toolscache.Indexers{}}
	small, everywhere := index.Small{Cache: all}, index.Small{Cache: all, All: true}
	for _, setup := range []func() error{
		func() error { return index.Setup(b.Context(), small) },
		func() error { return report.SetupIndexes(b.Context(), small) },
		func() error { return fleet.SetupIndexes(b.Context(), small) },
		func() error { return udpports.SetupIndexes(b.Context(), everywhere) },
		func() error { return gameserver.SetupIndexes(b.Context(), everywhere) },
	} {
		if err := setup(); err != nil {
			b.Fatal(err)
		}
	}
	for _, kind := range []struct {
		name      string
		texts     []string
		object    func() client.Object
		transform toolscache.TransformFunc
	}{
		{"Server", []string{serverText}, func() client.Object { return &v1alpha1.Server{} }, slim.Server},
		{"Server/Pod", []string{podText}, func() client.Object { return &corev1.Pod{} }, slimPod},
		{"ElasticService", []string{elasticText}, func() client.Object { return &v1alpha1.ElasticService{} }, slim.ElasticService},
		{"ElasticService/Services", []string{serviceText, privateText}, func() client.Object { return &corev1.Service{} }, slimService},
		{"ElasticService/EndpointSlices", []string{privateSliceText, resolverSliceText}, func() client.Object { return &discoveryv1.EndpointSlice{} }, slim.EndpointSlice},
	} {
		b.Run(kind.name, func(b *testing.B) {
			reportHeap(b, func() any {
				store := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, all.kind(kind.object()))
				for i := range heapObjects {
					for _, text := range kind.texts {
						o, err := kind.transform(decoded(b, kind.object(), text, i))
						if err == nil {
							err = store.Add(o)
						}
						if err != nil {
							b.Fatal(err)
						}
					}
				}
				return store
			})
		})
	}
	var servers []*v1alpha1.Server
	for i := range heapObjects {
		servers = append(servers, decoded(b, &v1alpha1.Server{}, serverText, i))
	}
	b.Run("Server/book", func(b *testing.B) {
		reportHeap(b, func() any {
			all := book.New(time.Now, book.Hooks{Decided: func(client.ObjectKey) {}, Held: func(client.ObjectKey) {}, Wakes: func() {}})
			for _, s := range servers {
				all.SetServer(s)
			}
			all.Lead()
			// One asks, and has the first.
			all.SetAllocation(&v1alpha1.Allocation{
				ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "match"},
				Spec:       v1alpha1.AllocationSpec{TargetRef: &v1alpha1.AllocationTarget{Name: "arena"}},
			}, false)
			return all
		})
	})
	runtime.KeepAlive(servers)
}

func reportHeap(b *testing.B, build func() any) {
	var each float64
	for b.Loop() {
		before := heap()
		built := build()
		each = float64(int64(heap())-int64(before)) / heapObjects
		runtime.KeepAlive(built)
	}
	b.ReportMetric(each, "B/object")
	b.ReportMetric(0, "ns/op")
}
