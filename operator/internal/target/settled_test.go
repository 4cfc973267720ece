package target

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// woken is a Deployment that was at zero and is wanted again, as all its controllers have
// told, and its pod.
type woken struct {
	deployment appsv1.Deployment
	set        appsv1.ReplicaSet
	pod        corev1.Pod
	// more are other objects.
	more []client.Object
	// forbidden is a kind that the operator may not read.
	forbidden string
	// read is done each time that an object has been read.
	read func(c client.Client, o client.Object)
	// scales is how often a scale was read.
	scales int
}

func owned(name string, generation int64, by ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "games", Name: name, UID: types.UID(name + "-uid"), Generation: generation, OwnerReferences: by}
}

func by(apiVersion, kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name + "-uid"), Controller: new(true)}
}

func newWoken() *woken {
	return &woken{
		deployment: appsv1.Deployment{
			ObjectMeta: owned("lobby", 3),
			Spec:       appsv1.DeploymentSpec{Replicas: new(int32(1))},
			Status:     appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 1},
		},
		set: appsv1.ReplicaSet{
			ObjectMeta: owned("lobby-1", 3, by("apps/v1", "Deployment", "lobby")),
			Spec:       appsv1.ReplicaSetSpec{Replicas: new(int32(1))},
			Status:     appsv1.ReplicaSetStatus{ObservedGeneration: 3, Replicas: 1},
		},
		pod: corev1.Pod{ObjectMeta: owned("lobby-1-a", 1, by("apps/v1", "ReplicaSet", "lobby-1"))},
	}
}

func (w *woken) scaler(t *testing.T) *Scaler {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Deployment", "ReplicaSet", "StatefulSet"} {
		mapper.Add(appsv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Server"), meta.RESTScopeNamespace)
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(append(w.more, &w.deployment, &w.set, &w.pod)...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if kind := o.GetObjectKind().GroupVersionKind().Kind; kind != "" && kind == w.forbidden {
				return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, key.Name, errors.New("no rule"))
			}
			err := c.Get(ctx, key, o, opts...)
			if w.read != nil {
				w.read(c, o)
			}
			return err
		},
		SubResourceGet: func(ctx context.Context, c client.Client, _ string, o, s client.Object, _ ...client.SubResourceGetOption) error {
			w.scales++
			d := &appsv1.Deployment{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), d); err != nil {
				return err
			}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&autoscalingv1.Scale{
				Spec: autoscalingv1.ScaleSpec{Replicas: *d.Spec.Replicas}, Status: autoscalingv1.ScaleStatus{Replicas: d.Status.Replicas},
			})
			s.(*unstructured.Unstructured).Object = content
			return err
		},
	}).Build()
	return NewScaler(c, c)
}

func TestAPodStaysOnceAllItsControllersKnowTheScale(t *testing.T) {
	ending := metav1.Now()
	for name, c := range map[string]struct {
		change func(w *woken)
		stays  bool
		waits  string
	}{
		"all have told": {stays: true},
		"the Deployment's controller hasn't seen the wake": {
			change: func(w *woken) { w.deployment.Status.ObservedGeneration = 2 },
			waits:  "Deployment games/lobby has a controller that hasn't taken in that it wants 1 replicas",
		},
		"the ReplicaSet's controller hasn't seen the zero": {
			change: func(w *woken) { w.set.Status.ObservedGeneration = 1 },
			waits:  "ReplicaSet games/lobby-1 has a controller that hasn't taken in that it wants 1 replicas",
		},
		"the ReplicaSet is at zero, which the Deployment's controller hasn't seen": {
			change: func(w *woken) {
				w.set.Spec.Replicas, w.set.Status = new(int32(0)), appsv1.ReplicaSetStatus{ObservedGeneration: 1, Replicas: 1}
			},
			waits: "ReplicaSet games/lobby-1 wants no pods yet",
		},
		"one of more pods than are wanted": {
			change: func(w *woken) { w.set.Status.Replicas = 3 },
			waits:  "ReplicaSet games/lobby-1 has 3 pods and wants 1",
		},
		"more pods of the Deployment than it wants, in a rollout": {
			change: func(w *woken) { w.deployment.Status.Replicas = 2 },
			stays:  true,
		},
		"the target is at zero again": {
			change: func(w *woken) { w.deployment.Spec.Replicas = new(int32(0)) },
			waits:  "Deployment games/lobby wants no pods yet",
		},
		"the pod ends":     {change: func(w *woken) { w.pod.DeletionTimestamp, w.pod.Finalizers = &ending, []string{"games/busy"} }},
		"the pod is gone":  {change: func(w *woken) { w.pod.Name = "another" }},
		"it is another of": {change: func(w *woken) { w.pod.UID = "another" }},
		"its ReplicaSet ends": {
			change: func(w *woken) { w.set.DeletionTimestamp, w.set.Finalizers = &ending, []string{"foregroundDeletion"} },
			waits:  "ReplicaSet games/lobby-1 is being deleted",
		},
		"nobody tells": {
			change: func(w *woken) { w.set.Status = appsv1.ReplicaSetStatus{} },
			waits:  ErrUntold.Error() + ": ReplicaSet games/lobby-1 has no status.observedGeneration",
		},
		"the Deployment may not be read": {
			change: func(w *woken) { w.forbidden = "Deployment" },
			waits:  ErrUntold.Error() + ": the operator may not read Deployment games/lobby, grant it get on that kind",
		},
		"another's pod": {
			change: func(w *woken) { w.set.OwnerReferences = nil },
			stays:  true,
		},
		"a Server's pod": {
			change: func(w *woken) {
				w.pod.OwnerReferences = []metav1.OwnerReference{by("dormouse.dev/v1alpha1", "Server", "lobby-1")}
			},
			waits: "there is no Server games/lobby-1",
		},
		"it is told to end between two questions": {
			change: func(w *woken) {
				w.set.Status.ObservedGeneration = 2
				pods := 0
				w.read = func(c client.Client, o client.Object) {
					if _, ok := o.(*unstructured.Unstructured); !ok || o.GetObjectKind().GroupVersionKind().Kind != "Pod" {
						return
					}
					if pods++; pods == 1 {
						// The controller wakes up, sees the zero and then the wake.
						_ = c.Delete(context.Background(), o.DeepCopyObject().(client.Object))
						set := &appsv1.ReplicaSet{}
						_ = c.Get(context.Background(), types.NamespacedName{Namespace: "games", Name: "lobby-1"}, set)
						set.Status.ObservedGeneration = 3
						_ = c.Status().Update(context.Background(), set)
					}
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWoken()
			if c.change != nil {
				c.change(w)
			}
			ref := Ref{v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "lobby"}, "games"}
			got := w.scaler(t).Settled(t.Context(), ref, []PodKey{{"lobby-1-a", "lobby-1-a-uid"}})
			if w.scales > 0 {
				t.Errorf("the scale of a Deployment, which says it itself, was read %d times", w.scales)
			}
			stay, waits := got.Stay, got.Waits
			var want []types.UID
			if c.stays {
				want = []types.UID{"lobby-1-a-uid"}
			}
			said := ""
			if waits != nil {
				said = waits.Error()
			}
			if !slices.Equal(stay, want) || said != c.waits {
				t.Errorf("%v stay, %q; want %v, %q", stay, said, want, c.waits)
			}
			if untold := strings.HasPrefix(c.waits, ErrUntold.Error()); errors.Is(waits, ErrUntold) != untold || (len(got.Untold) > 0) != untold {
				t.Errorf("%v are untold: %v", got.Untold, waits)
			}
		})
	}
}

// Pods of a kind that nobody knows may be its own without saying so.
func TestAPodWithoutOwnersOfAnUnknownKindIsUntold(t *testing.T) {
	w := newWoken()
	w.set.OwnerReferences = nil
	ref := Ref{v1alpha1.ScaleTargetRef{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "lobby"}, "games"}
	got := w.scaler(t).Settled(t.Context(), ref, []PodKey{{"lobby-1-a", "lobby-1-a-uid"}})
	want := ErrUntold.Error() + ": Pod games/lobby-1-a doesn't belong to Rollout games/lobby by its ownerReferences"
	if len(got.Stay) > 0 || len(got.Untold) != 1 || got.Waits == nil || got.Waits.Error() != want {
		t.Errorf("%+v; want it untold: %s", got, want)
	}
}

// A StatefulSet ends its pods one by one, and counts those that end.
func TestAStatefulSetsPodStaysByItsNumber(t *testing.T) {
	set := &appsv1.StatefulSet{
		ObjectMeta: owned("lobby", 3),
		Spec:       appsv1.StatefulSetSpec{Replicas: new(int32(2)), Ordinals: &appsv1.StatefulSetOrdinals{Start: 3}},
		Status:     appsv1.StatefulSetStatus{ObservedGeneration: 3, Replicas: 4},
	}
	w := newWoken()
	w.more = append(w.more, set)
	var pods []PodKey
	for _, name := range []string{"lobby-2", "lobby-3", "lobby-4", "lobby-5"} {
		w.more = append(w.more, &corev1.Pod{ObjectMeta: owned(name, 1, by("apps/v1", "StatefulSet", "lobby"))})
		pods = append(pods, PodKey{name, types.UID(name + "-uid")})
	}
	ref := Ref{v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "lobby"}, "games"}
	got := w.scaler(t).Settled(t.Context(), ref, pods)
	if want := []types.UID{"lobby-3-uid", "lobby-4-uid"}; !slices.Equal(got.Stay, want) || got.Waits != nil {
		t.Errorf("%+v; want %v to stay", got, want)
	}
}
