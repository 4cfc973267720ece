package manifests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func object(apiVersion, kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name},
	}}
}

func definition() *unstructured.Unstructured {
	d := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "games.example.com")
	d.Object["spec"] = map[string]any{
		"group": "example.com", "names": map[string]any{"kind": "Game"},
		"versions": []any{map[string]any{"name": "v1", "storage": true}},
	}
	return d
}

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []schema.GroupVersionKind{
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		{Group: "example.com", Version: "v1", Kind: "Game"},
	} {
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
	}
	return scheme
}

func TestObjectsAreAppliedInAnOrderThatWorks(t *testing.T) {
	objects := []*unstructured.Unstructured{
		object("example.com/v1", "Game", "chess"),
		object("apps/v1", "Deployment", "operator"),
		object("v1", "Service", "operator"),
		object("rbac.authorization.k8s.io/v1", "ClusterRole", "operator"),
		definition(),
		object("v1", "Namespace", "system"),
		object("v1", "ServiceAccount", "operator"),
	}
	var applied []string
	established := false
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, config runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			kind := config.(interface{ GetKind() string }).GetKind()
			if kind == "ClusterRole" && !established {
				t.Error("went on before the definition was established")
			}
			applied = append(applied, kind)
			return nil
		},
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			established = true
			o.(*unstructured.Unstructured).Object["status"] = map[string]any{
				"conditions": []any{map[string]any{"type": "Established", "status": "True"}},
			}
			return nil
		},
	})
	if err := Apply(t.Context(), c, "tester", objects, nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"Namespace", "CustomResourceDefinition", "ClusterRole", "ServiceAccount", "Service", "Deployment", "Game"}
	if diff := cmp.Diff(want, applied); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if objects[0].GetName() != "chess" {
		t.Error("the caller's list was sorted")
	}
}

func TestADefinitionThatIsNeverEstablishedEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).Build()
	err := Apply(ctx, c, "tester", []*unstructured.Unstructured{definition()}, nil)
	if err == nil || !strings.Contains(err.Error(), "wait until customresourcedefinition/games.example.com is established") {
		t.Errorf("error = %v, want one that names the definition", err)
	}
}

func TestUsersObjectsGoBeforeTheOperatorThatLetsThemGo(t *testing.T) {
	scheme := testScheme(t)
	chess := object("example.com/v1", "Game", "chess")
	chess.SetNamespace("games")
	installed := []*unstructured.Unstructured{object("v1", "Namespace", "system"), definition(), object("apps/v1", "Deployment", "operator")}
	installed[2].SetNamespace("system")
	disks := object("v1", "Namespace", "disks")
	disks.SetAnnotations(map[string]string{"dormouse.dev/undeploy": "keep"})
	installed = append(installed, disks)
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(chess.DeepCopy())
	for _, o := range installed {
		builder = builder.WithObjects(o.DeepCopy())
	}
	var lines []string
	if err := Delete(t.Context(), builder.Build(), installed, nil, func(line string) { lines = append(lines, line) }); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"delete game/chess in games",
		"delete deployment/operator in system",
		"delete customresourcedefinition/games.example.com",
		"leave namespace/disks: its annotation dormouse.dev/undeploy says so",
		"delete namespace/system",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

// The operator makes others while it runs: a Fleet's replacement, or one of the same name.
func TestWhatIsMadeMeanwhileGoesBeforeTheOperatorToo(t *testing.T) {
	game := func(name, uid string) *unstructured.Unstructured {
		g := object("example.com/v1", "Game", name)
		g.SetUID(types.UID(uid))
		return g
	}
	installed := []*unstructured.Unstructured{definition(), object("apps/v1", "Deployment", "operator")}
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(game("chess", "1"), installed[0].DeepCopy(), installed[1].DeepCopy()).
		WithInterceptorFuncs(interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if err := c.Delete(ctx, o, opts...); err != nil || o.GetUID() != "1" {
					return err
				}
				return errors.Join(c.Create(ctx, game("chess", "2")), c.Create(ctx, game("draughts", "3")))
			},
		}).Build()
	var lines []string
	before := func(users []*unstructured.Unstructured) error {
		lines = append(lines, fmt.Sprint("users: ", len(users)))
		return nil
	}
	if err := Delete(t.Context(), c, installed, before, func(line string) { lines = append(lines, line) }); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"users: 1", "delete game/chess", "users: 2", "delete game/chess", "delete game/draughts",
		"delete deployment/operator", "delete customresourcedefinition/games.example.com",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

// An owner lets go of what it owns when it may go, and would make it anew before that.
func TestOwnersGoBeforeWhatTheyOwn(t *testing.T) {
	owner, owned, left := object("example.com/v1", "Game", "chess"), object("example.com/v1", "Game", "board"), object("example.com/v1", "Game", "another")
	owner.SetUID("1")
	owned.SetUID("2")
	owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Game", Name: "chess", UID: "1"}})
	left.SetUID("3")
	left.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "chess", UID: "4"}})
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(owner, owned, left, definition()).Build()
	var lines []string
	if err := Delete(t.Context(), c, []*unstructured.Unstructured{definition()}, nil, func(line string) { lines = append(lines, line) }); err != nil {
		t.Fatal(err)
	}
	want := []string{"delete game/another", "delete game/chess", "delete game/board", "delete customresourcedefinition/games.example.com"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

func TestWhatIsGoneAlreadyIsNoError(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).Build()
	if err := Delete(t.Context(), c, []*unstructured.Unstructured{definition(), object("v1", "Namespace", "system")}, nil, nil); err != nil {
		t.Error(err)
	}
}

func TestAFinalizerThatRemainsIsNamed(t *testing.T) {
	chess := object("example.com/v1", "Game", "chess")
	chess.SetFinalizers([]string{"example.com/guard"})
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(chess, definition()).Build()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := Delete(ctx, c, []*unstructured.Unstructured{definition()}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "example.com/guard") {
		t.Errorf("error = %v, want one that names the finalizer", err)
	}
}

func TestRollouts(t *testing.T) {
	for name, test := range map[string]struct {
		status    appsv1.DeploymentStatus
		wantDone  bool
		wantState string
	}{
		"not seen yet":         {status: appsv1.DeploymentStatus{ObservedGeneration: 1}, wantState: "not taken up yet"},
		"pods to create":       {status: appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: 1}, wantState: "1 of 2 pods created"},
		"old pods":             {status: appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: 2, Replicas: 3, AvailableReplicas: 3}, wantState: "1 old pods to go"},
		"one not available":    {status: appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: 2, Replicas: 2, AvailableReplicas: 1}, wantState: "1 of 2 pods available"},
		"every pod, available": {status: appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: 2, Replicas: 2, AvailableReplicas: 2}, wantDone: true, wantState: "2 of 2 pods available"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}, Status: test.status}
			if done, state := rollout(d); done != test.wantDone || state != test.wantState {
				t.Errorf("rollout = %v, %q; want %v, %q", done, state, test.wantDone, test.wantState)
			}
		})
	}
}

func TestTheErrorSaysWhatPodsWaitFor(t *testing.T) {
	labels := map[string]string{"app": "operator"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "operator", Namespace: "system"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	pod := func(name string, status corev1.PodStatus) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "system", Labels: labels}, Status: status}
	}
	for name, test := range map[string]struct {
		pods []client.Object
		want string
	}{
		"no image": {
			pods: []client.Object{pod("operator-1", corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}},
			}}})},
			want: "pod operator-1: ErrImagePull: not found",
		},
		"no node": {
			pods: []client.Object{pod("operator-2", corev1.PodStatus{Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/2 nodes are available",
			}}})},
			want: "pod operator-2: Unschedulable: 0/2 nodes are available",
		},
		"no pod": {want: "it has no pods"},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(slices.Concat(test.pods, []client.Object{d.DeepCopy()})...).Build()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			operator := object("apps/v1", "Deployment", "operator")
			operator.SetNamespace("system")
			err := WaitAvailable(ctx, c, []*unstructured.Unstructured{operator}, nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q", err, test.want)
			}
		})
	}
}
