package namespaced

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// webPort is the web server's port.
const webPort = 8080

func TestDormouseOfOneNamespaceServesThatOneAlone(t *testing.T) {
	// What is registered first is done last: a failure is described while its Dormouse still runs.
	t.Cleanup(func() { putBack(t) })
	ctx, others := suite.Namespace(t)
	suite.NamespaceCalled(ctx, t, games)
	image, err := suite.Cluster.WebServer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pods, since := limit(ctx, t)

	here := env.Game{
		Namespace: games, Name: "web", Image: image, Web: []int32{webPort}, Probe: true, Replicas: 1, SleepAfter: time.Second,
		ChangeElastic: func(es *v1alpha1.ElasticService) {
			es.Spec.Idle = &v1alpha1.Idle{Triggers: []v1alpha1.Trigger{{
				Type: v1alpha1.TriggerHTTP, HTTP: &v1alpha1.HTTPTrigger{Port: webPort, Path: "/busy", Threshold: 1},
			}}}
		},
	}
	there := here
	there.Namespace = others
	if err := suite.Cluster.Create(ctx, there); err != nil {
		t.Fatal(err)
	}
	pod := onlyPod(ctx, t, there)
	if err := suite.Cluster.Create(ctx, here); err != nil {
		t.Fatal(err)
	}
	slept := asleep(ctx, t, here, time.Time{})
	from := echo(ctx, t, here)
	if !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return slices.Contains(p.Status.PodIPs, corev1.PodIP{IP: from.String()}) }) {
		t.Errorf("the request that woke the service came to the server from %s, want a resolver of config/namespaced:\n%s", from, describe(pods))
	}
	asleep(ctx, t, here, slept)
	untouched(ctx, t, there, pod)
	letGo(ctx, t, here)
	noneRefused(ctx, t, pods, since)
}

// asleep waits until a service has been put to sleep after a time, and every node sends its clients
// to the resolvers. It tells when it was.
func asleep(ctx context.Context, t *testing.T, g env.Game, after time.Time) time.Time {
	t.Helper()
	es, err := suite.Cluster.WaitFor(ctx, g.Key(), "asleep, with the resolver before it", func(es *v1alpha1.ElasticService) bool {
		slept := es.Status.LastSleepTime
		return es.Status.Phase == v1alpha1.PhaseAsleep && es.Status.Mode == v1alpha1.ModeProxy && slept != nil && slept.After(after)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitRouted(ctx, es, 1); err != nil {
		t.Fatal(err)
	}
	suite.Gone(ctx, t, g)
	return es.Status.LastSleepTime.Time
}

// echo posts bytes, wants them back as they were, and tells from where the server saw the client.
func echo(ctx context.Context, t *testing.T, g env.Game) netip.Addr {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
	defer cancel()
	said := make([]byte, 256<<10)
	_, _ = rand.Read(said) // It never fails.
	url := "http://" + suite.ClusterIP(ctx, t, g, webPort) + "/echo"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(said))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: suite.Cluster.DialPlayer}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatalf("wake %s: %v", g.Key(), err)
	}
	heard, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatalf("read the answer of %s, %s, after %d bytes: %v", g.Key(), res.Status, len(heard), err)
	}
	if res.StatusCode != http.StatusOK || !bytes.Equal(said, heard) {
		t.Fatalf("%s answered %s and %d bytes that aren't the %d that were sent: %.200q", g.Key(), res.Status, len(heard), len(said), heard)
	}
	from, err := netip.ParseAddrPort(res.Header.Get("Client-Address"))
	if err != nil {
		t.Fatalf("the server saw the client at %q: %v", res.Header.Get("Client-Address"), err)
	}
	return from.Addr().Unmap()
}

// onlyPod waits until a game has one pod, which is ready.
func onlyPod(ctx context.Context, t *testing.T, g env.Game) corev1.Pod {
	t.Helper()
	_, err := env.Wait(ctx, suite.Cluster, &appsv1.DeploymentList{}, g.Key(), "available", func(d *appsv1.Deployment) bool {
		return d.Status.AvailableReplicas == 1
	})
	if err != nil {
		t.Fatal(err)
	}
	var list corev1.PodList
	if err := suite.Cluster.Client.List(ctx, &list, client.InNamespace(g.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("%d pods in namespace %s, want 1: %s", len(list.Items), g.Namespace, describe(list.Items))
	}
	return list.Items[0]
}

// untouched fails the test if anything became of the objects of another namespace.
func untouched(ctx context.Context, t *testing.T, g env.Game, before corev1.Pod) {
	t.Helper()
	es := &v1alpha1.ElasticService{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), es); err != nil {
		t.Fatal(err)
	}
	if len(es.Finalizers) > 0 || len(es.Status.Conditions) > 0 || es.Status.Phase != "" {
		t.Errorf("ElasticService %s of another namespace has the finalizers %v and the status %+v, want neither", g.Key(), es.Finalizers, es.Status)
	}
	if pod := onlyPod(ctx, t, g); pod.UID != before.UID || pod.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the pod of another namespace was %s, and is %s", describe([]corev1.Pod{before}), describe([]corev1.Pod{pod}))
	}
	var made discoveryv1.EndpointSliceList
	if err := suite.Cluster.Client.List(ctx, &made, client.InNamespace(g.Namespace), client.MatchingLabels{discoveryv1.LabelManagedBy: wellknown.ManagedBy}); err != nil {
		t.Fatal(err)
	}
	for _, s := range made.Items {
		t.Errorf("EndpointSlice %s was made in namespace %s, want none there", s.Name, g.Namespace)
	}
}

// letGo deletes an ElasticService, for which its finalizer must be taken off.
func letGo(ctx context.Context, t *testing.T, g env.Game) {
	t.Helper()
	es := &v1alpha1.ElasticService{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), es); err != nil {
		t.Fatal(err)
	}
	remove(ctx, t, es)
	err := env.WaitUntil(ctx, "ElasticService "+g.Key().String()+" is gone", func(ctx context.Context) (bool, error) {
		err := suite.Cluster.Client.Get(ctx, g.Key(), es)
		if err == nil {
			err = fmt.Errorf("its finalizers are %v", es.Finalizers)
		}
		return apierrors.IsNotFound(err), err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// noneRefused fails the test if the pods were refused anything, by the API server's record or by their
// own logs.
func noneRefused(ctx context.Context, t *testing.T, pods []corev1.Pod, since time.Time) {
	t.Helper()
	entries, err := suite.Cluster.Cluster.Audit(since)
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]int{}
	refused := map[string]bool{}
	for _, e := range entries {
		asked[e.Pod]++
		if e.Forbidden {
			refused[fmt.Sprintf("%s: %s %s: %s", e.Pod, e.Verb, e.Path, e.Message)] = slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Name == e.Pod })
		}
	}
	for what, ours := range refused {
		if ours { // Pods that had rights in all namespaces may have been refused.
			t.Errorf("it has no right to what it asked for: %s", what)
		}
	}
	for _, pod := range pods {
		if asked[pod.Name] == 0 {
			t.Errorf("the API server has no record of a request of Pod %s, of %v", pod.Name, asked)
		}
		if args := pod.Spec.Containers[0].Args; !slices.Contains(args, "--namespaces="+games) {
			t.Errorf("Pod %s isn't limited to namespace %s: %v", pod.Name, games, args)
		}
		text, err := suite.Cluster.Log(ctx, pod)
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(text) {
			if strings.Contains(strings.ToLower(line), "forbidden") {
				t.Errorf("Pod %s logged: %.500s", pod.Name, line)
			}
		}
	}
}

// describe tells of pods.
func describe(pods []corev1.Pod) string {
	var b strings.Builder
	for i := range pods {
		fmt.Fprintf(&b, "Pod %s, %s, at %s; ", pods[i].Name, pods[i].Status.Phase, pods[i].Status.PodIP)
	}
	return b.String()
}
