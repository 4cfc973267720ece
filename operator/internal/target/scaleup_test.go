package target

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// served is a target as the API server has it, whose scale may be patched or not.
type served struct {
	replicas  int64
	forbidden bool
	calls     []string
}

func (s *served) scaler(t *testing.T) *Scaler {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
			s.calls = append(s.calls, "patch")
			body, err := p.Data(o)
			switch {
			case err != nil:
				return err
			case s.forbidden:
				return apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, o.GetName(), errors.New("no rule"))
			case !strings.Contains(string(body), `{"op":"test","path":"/spec","value":{}}`):
				return fmt.Errorf("it may scale down: %s", body)
			case s.replicas != 0:
				return apierrors.NewInvalid(schema.GroupKind{Kind: "Scale"}, o.GetName(), nil)
			}
			_, err = fmt.Sscanf(string(body[strings.LastIndex(string(body), ":")+1:]), "%d", &s.replicas)
			return err
		},
		SubResourceGet: func(_ context.Context, _ client.Client, _ string, _, scale client.Object, _ ...client.SubResourceGetOption) error {
			s.calls = append(s.calls, "get")
			return unstructured.SetNestedField(scale.(*unstructured.Unstructured).Object, s.replicas, "spec", "replicas")
		},
		SubResourceUpdate: func(_ context.Context, _ client.Client, _ string, _ client.Object, opts ...client.SubResourceUpdateOption) (err error) {
			s.calls = append(s.calls, "update")
			o := &client.SubResourceUpdateOptions{}
			o.ApplyOptions(opts)
			s.replicas, _, err = unstructured.NestedInt64(o.SubResourceBody.(*unstructured.Unstructured).Object, "spec", "replicas")
			return err
		},
	}).Build()
	return NewScaler(c, c)
}

func TestATargetIsRaisedAndNeverLowered(t *testing.T) {
	ref := Ref{v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "lobby"}, "games"}
	for name, c := range map[string]struct {
		served served
		want   Replicas
		calls  []string
		raised Raised
	}{
		"one that sleeps, in one call":    {served{}, Replicas{AtLeast: 1, FromZero: 3, Asleep: true}, []string{"patch"}, Raised{Before: 0, After: 3}},
		"one that may be awake":           {served{}, Replicas{AtLeast: 1, FromZero: 3}, []string{"get", "update"}, Raised{Before: 0, After: 3}},
		"one that was woken meanwhile":    {served{replicas: 5}, Replicas{AtLeast: 1, FromZero: 3, Asleep: true}, []string{"patch", "get"}, Raised{Before: 5, After: 5}},
		"one that has less than it needs": {served{replicas: 1}, Replicas{AtLeast: 2, FromZero: 3, Asleep: true}, []string{"patch", "get", "update"}, Raised{Before: 1, After: 2}},
		"one that may not be patched":     {served{forbidden: true}, Replicas{AtLeast: 1, FromZero: 3, Asleep: true}, []string{"patch", "get", "update"}, Raised{Before: 0, After: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.served.scaler(t).RaiseTo(t.Context(), ref, c.want)
			if err != nil || got != c.raised || c.served.replicas != int64(c.raised.After) {
				t.Errorf("raised %+v to %d, %v; want %+v", got, c.served.replicas, err, c.raised)
			}
			if diff := cmp.Diff(c.calls, c.served.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// A Server in a Fleet doesn't say how its Pod is found, and an ElasticService may scale it all the same.
func TestThePodOfAServerIsFoundWhateverItsScaleSays(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Server", "Fleet"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	c := fake.NewClientBuilder().WithRESTMapper(mapper).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceGet: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceGetOption) error {
			return nil
		},
	}).Build()
	for kind, want := range map[string]string{"Server": "dormouse.dev/server=lobby-abcde", "Fleet": ""} {
		ref := Ref{v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: "lobby-abcde"}, "games"}
		if scale, err := NewScaler(c, c).Get(t.Context(), ref); err != nil || scale.Status.Selector != want {
			t.Errorf("a %s has the selector %q, %v; want %q", kind, scale.Status.Selector, err, want)
		}
	}
}
