package target

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
)

var (
	lobbyLabels   = metav1.LabelSelector{MatchLabels: map[string]string{"app": "lobby", "a": "b"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"game", "beta"}}}}
	probedLobby   = corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "log"}, {Name: "game", ReadinessProbe: &corev1.Probe{}}}}}
	unprobedLobby = corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game"}}}}
)

// seenBy is an API server with a Deployment, a StatefulSet and an Arena, and what it was asked.
type seenBy struct {
	// refuse is its answer to each read of an object; nil: the object.
	refuse func() error
	calls  []string
}

func (s *seenBy) scaler(t *testing.T) *Scaler {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	arenas := schema.GroupVersion{Group: "example.org", Version: "v1"}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		mapper.Add(appsv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(arenas.WithKind("Arena"), meta.RESTScopeNamespace)
	at := metav1.ObjectMeta{Namespace: "games", Name: "lobby"}
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(
		&appsv1.Deployment{ObjectMeta: at, Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: &lobbyLabels, Template: probedLobby}},
		&appsv1.StatefulSet{ObjectMeta: at, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(0)), Selector: &lobbyLabels, Template: unprobedLobby}},
	).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			s.calls = append(s.calls, "get")
			if s.refuse != nil {
				if err := s.refuse(); err != nil {
					return err
				}
			}
			return c.Get(ctx, key, o)
		},
		SubResourceGet: func(_ context.Context, _ client.Client, _ string, _, scale client.Object, _ ...client.SubResourceGetOption) error {
			s.calls = append(s.calls, "scale")
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&autoscalingv1.Scale{
				Spec: autoscalingv1.ScaleSpec{Replicas: 7}, Status: autoscalingv1.ScaleStatus{Selector: "app=scale"},
			})
			scale.(*unstructured.Unstructured).Object = content
			return err
		},
	}).Build()
	return NewScaler(interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, plain := o.(*unstructured.Unstructured); !plain {
				return errors.New("a cache would have all objects of the kind for it")
			}
			return c.Get(ctx, key, o, opts...)
		},
	}), c)
}

// Each wake reads one.
func TestATargetIsSeenInOneCall(t *testing.T) {
	t.Parallel()
	const selector = "a=b,app=lobby,tier in (beta,game)"
	lobbies := schema.GroupResource{Group: "apps", Resource: "deployments"}
	forbidden := func() error { return apierrors.NewForbidden(lobbies, "lobby", errors.New("no rule")) }
	byScale := Workload{Replicas: 7, Selector: "app=scale"}
	for name, c := range map[string]struct {
		apiVersion, kind string
		byScale          bool
		refuse           func() error
		want             Workload
		calls            []string
	}{
		"a Deployment":                 {"apps/v1", "Deployment", false, nil, Workload{3, false, selector, v1alpha1.PodReadinessProbe}, []string{"get"}},
		"a StatefulSet":                {"apps/v1", "StatefulSet", false, nil, Workload{0, false, selector, v1alpha1.PodReadinessConnect}, []string{"get"}},
		"one that may not be read":     {"apps/v1", "Deployment", false, forbidden, byScale, []string{"get", "scale"}},
		"one whose scale is asked for": {"apps/v1", "Deployment", true, nil, byScale, []string{"scale"}},
		"any other kind":               {"example.org/v1", "Arena", false, nil, byScale, []string{"scale"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &seenBy{refuse: c.refuse}
			got, err := api.scaler(t).See(t.Context(), Ref{v1alpha1.ScaleTargetRef{APIVersion: c.apiVersion, Kind: c.kind, Name: "lobby"}, "games"}, c.byScale)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("seen (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.calls, api.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// Kubernetes deletes the disks of a StatefulSet's pods at zero where that is asked for, and only if they have any.
func TestWhichTargetsLoseTheirDisks(t *testing.T) {
	t.Parallel()
	of := func(policy appsv1.PersistentVolumeClaimRetentionPolicyType, claims int) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: make([]corev1.PersistentVolumeClaim, claims)}}
		if policy != "" {
			s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: policy, WhenDeleted: "Delete"}
		}
		return s
	}
	for name, c := range map[string]struct {
		set  *appsv1.StatefulSet
		want bool
	}{
		"it keeps them by default": {of("", 1), false},
		"it keeps them":            {of("Retain", 1), false},
		"it deletes them":          {of("Delete", 2), true},
		"it has none":              {of("Delete", 0), false},
	} {
		is, err := workloadOf(Ref{}, c.set)
		if err != nil || is.LosesDisks != c.want {
			t.Errorf("%s: it loses them: %t, %v", name, is.LosesDisks, err)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c.set)
		if err != nil || losesDisksOf(&unstructured.Unstructured{Object: content}) != c.want {
			t.Errorf("%s: read as any kind it doesn't say the same: %v", name, err)
		}
	}
}

// An error says the same of a target that is read itself as of its scale.
func TestATargetThatIsNotThereIsNotAskedForItsScale(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuse func() error
		want   error
		says   string
	}{
		"it isn't there": {func() error {
			return apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, "lobby")
		}, ErrNotFound, "there is no Deployment games/lobby"},
		"nobody answers": {func() error { return context.DeadlineExceeded }, context.DeadlineExceeded, "read the scale of Deployment games/lobby: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &seenBy{refuse: c.refuse}
			_, err := api.scaler(t).See(t.Context(), Ref{v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "lobby"}, "games"}, false)
			if !errors.Is(err, c.want) || err.Error() != c.says || len(api.calls) != 1 {
				t.Errorf("after %d calls: %v; want %q after one", len(api.calls), err, c.says)
			}
		})
	}
}
