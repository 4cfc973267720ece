package elasticservice_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// ofKinds is the group of kinds that Dormouse knows nothing of.
const ofKinds = "kinds.example.org"

// watchGrace is how long a watch outlasts the last that names its kind, and the time to end.
const watchGrace = 30*time.Second + promptly

// scalableKind is the definition of a kind with a scale.
func scalableKind(kind string) string {
	lower := strings.ToLower(kind)
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]ss.%[3]s}
spec:
  group: %[3]s
  scope: Namespaced
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]ss, singular: %[2]s}
  versions:
    - name: v1
      served: true
      storage: true
      subresources:
        status: {}
        scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .spec.selector}
      schema:
        openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {spec: {type: object, properties: {replicas: {type: integer}, selector: {type: string}}}}}
`, kind, lower, ofKinds)
}

// ofKind is an object of a kind, at zero.
func ofKind(kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": ofKinds + "/v1", "kind": kind, "metadata": map[string]any{"name": name},
		"spec": map[string]any{"replicas": int64(0), "selector": "app=" + name},
	}}
}

// createFirst makes the first object of a kind. The API server may not serve one yet whose definition it
// calls established, least of all while there are others of its group to come.
func (w *world) createFirst(o *unstructured.Unstructured) {
	w.t.Helper()
	o.SetNamespace(w.ns)
	fixture.Eventually(w.t, promptly, o.GetKind()+" "+o.GetName()+" is made", func(ctx context.Context) error {
		err := w.c.Create(ctx, o.DeepCopy())
		if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			w.t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
		}
		return err
	})
}

// scales has an ElasticService scale an object of a kind that has its name.
func scales(kind string) func(*v1alpha1.ElasticService) {
	return func(es *v1alpha1.ElasticService) {
		es.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: ofKinds + "/v1", Kind: kind, Name: es.Name}
	}
}

// letWatch grants the operator what a component grants it for a kind.
func letWatch(t *testing.T, kind string) {
	t.Helper()
	name := strings.ToLower(kind) + "s." + ofKinds
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{ofKinds}, Resources: []string{strings.ToLower(kind) + "s"}, Verbs: []string{"get", "list", "watch"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: fixture.SystemNamespace, Name: fixture.OperatorAccount}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := cluster.client.Create(t.Context(), o); err != nil {
			t.Fatalf("grant %s: %v", name, err)
		}
	}
}

// wantWatches waits until the API server has so many watches of a kind.
func wantWatches(t *testing.T, within time.Duration, kind string, want int) {
	t.Helper()
	c, err := kubernetes.NewForConfig(cluster.config)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, within, "the watches of "+kind, func(ctx context.Context) error {
		text, err := c.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("read the API server's metrics: %w", err)
		}
		got := 0
		for line := range bytes.Lines(text) {
			series, value, ok := strings.Cut(strings.TrimSpace(string(line)), "} ")
			if !ok || !strings.HasPrefix(series, "apiserver_longrunning_requests{") || !strings.Contains(series, `resource="`+strings.ToLower(kind)+`s"`) {
				continue
			}
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return fmt.Errorf("read the API server's metric %s: %w", line, err)
			}
			got += int(n)
		}
		if got != want {
			return fmt.Errorf("they are %d, want %d", got, want)
		}
		return nil
	})
}

// scaleTo sets the replicas of an object as a person would.
func (w *world) scaleTo(kind, name string, replicas int32) {
	w.t.Helper()
	o := ofKind(kind, name)
	o.SetNamespace(w.ns)
	s := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if err := w.c.SubResource("scale").Update(w.t.Context(), o, client.WithSubResourceBody(s)); err != nil {
		w.t.Fatalf("scale %s %s to %d: %v", kind, name, replicas, err)
	}
}

// replicasOf are what an object wants.
func (w *world) replicasOf(kind, name string) int64 {
	w.t.Helper()
	o := ofKind(kind, name)
	if err := w.read(w.t.Context(), name, o); err != nil {
		w.t.Fatal(err)
	}
	n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	return n
}

// logged are the lines of both operators' logs with the words.
func logged(t *testing.T, words ...string) []string {
	t.Helper()
	var found []string
	for _, o := range cluster.operators {
		log, err := os.ReadFile(o.LogFile)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(log)) {
			has := true
			for _, w := range words {
				has = has && strings.Contains(line, w)
			}
			if has {
				found = append(found, line)
			}
		}
	}
	return found
}

// A target may be of any kind with a scale, and all of that may come after the ElasticService. Its
// kind has one watch by each operator, however many services it has, while it has any.
func TestTargetsOfAnyKindAreWatched(t *testing.T) {
	t.Parallel()
	const kind, services = "Arena", 50
	w := newWorld(t)
	w.service("lobby")
	w.elastic("lobby", scales(kind))
	w.want("lobby", promptly, hasCondition(conditions.TargetFound, metav1.ConditionFalse, reasons.TargetNotFound))
	letWatch(t, kind)
	installDefinition(t, scalableKind(kind))
	w.createFirst(ofKind(kind, "lobby"))
	asleep := inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	w.want("lobby", afterElection, ready, asleep)
	wantWatches(t, afterElection, kind, len(cluster.operators))

	w.wake(0, resolverToken(t), "lobby")
	if n := w.replicasOf(kind, "lobby"); n != 1 {
		t.Errorf("woken to %d replicas, want 1", n)
	}

	for i := range services - 1 {
		name := fmt.Sprintf("arena-%d", i)
		w.service(name)
		w.create(ofKind(kind, name))
		w.elastic(name, scales(kind))
	}
	for i := range services - 1 {
		w.want(fmt.Sprintf("arena-%d", i), afterSettling, ready, asleep)
	}
	wantWatches(t, promptly, kind, len(cluster.operators))

	// Nothing but the watch tells of these: no pod comes, and no pass is due.
	for _, name := range []string{"arena-0", "arena-48"} {
		w.scaleTo(kind, name, 1)
		w.want(name, promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
		w.scaleTo(kind, name, 0)
		w.want(name, promptly, asleep)
	}

	// Without their Services they don't wait for servers, which never come here.
	if err := w.abandon(); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, afterSettling, "all ElasticServices are gone", func(ctx context.Context) error {
		var list v1alpha1.ElasticServiceList
		if err := w.c.List(ctx, &list, client.InNamespace(w.ns)); err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d are there", len(list.Items))
		}
		return nil
	})
	wantWatches(t, promptly, kind, len(cluster.operators))
	wantWatches(t, watchGrace, kind, 0)
}

// A kind of which the operator may not know more than the scale works, and it is said once why it
// isn't watched.
func TestTargetsOfAKindThatMayNotBeWatchedWork(t *testing.T) {
	t.Parallel()
	const kind = "Foundry"
	w := newWorld(t)
	definition := strings.ReplaceAll(scalableKind(kind), "foundrys", "foundries")
	installDefinition(t, definition)
	w.service("lobby")
	w.createFirst(ofKind(kind, "lobby"))
	w.elastic("lobby", scales(kind))
	w.want("lobby", afterElection, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.wake(0, resolverToken(t), "lobby")
	if n := w.replicasOf(kind, "lobby"); n != 1 {
		t.Errorf("woken to %d replicas, want 1", n)
	}
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	fixture.Eventually(t, promptly, "it is said that the kind isn't watched", func(ctx context.Context) error {
		for _, o := range cluster.operators {
			counts, err := counters(ctx, o, "dormouse_target_kinds")
			if err != nil {
				return err
			}
			if counts[`dormouse_target_kinds{state="forbidden"}`] == 0 {
				return fmt.Errorf("the operator at %s counts none", o.Address)
			}
		}
		return nil
	})
	if lines := logged(t, "Kind="+kind, "argo-rollouts"); len(lines) != len(cluster.operators) {
		t.Errorf("it is logged %d times, want once by each operator:\n%s", len(lines), strings.Join(lines, ""))
	}
}

// A kind that goes while it is watched takes its watch with it.
func TestTheWatchOfAKindThatIsGoneEnds(t *testing.T) {
	t.Parallel()
	const kind = "Tavern"
	w := newWorld(t)
	letWatch(t, kind)
	installDefinition(t, scalableKind(kind))
	w.service("lobby")
	w.createFirst(ofKind(kind, "lobby"))
	w.elastic("lobby", scales(kind))
	w.want("lobby", afterElection, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	wantWatches(t, afterElection, kind, len(cluster.operators))
	removeDefinition(t, scalableKind(kind))
	w.want("lobby", afterElection, func(es *v1alpha1.ElasticService) error {
		if ready(es) == nil {
			return fmt.Errorf("it is ready")
		}
		return nil
	})
	wantWatches(t, promptly, kind, 0)
	if lines := logged(t, "Failed to watch", strings.ToLower(kind)); len(lines) > 0 {
		t.Errorf("it is logged:\n%s", strings.Join(lines, ""))
	}

	installDefinition(t, scalableKind(kind))
	w.createFirst(ofKind(kind, "lobby"))
	w.want("lobby", afterElection, ready)
	wantWatches(t, afterElection, kind, len(cluster.operators))
}
