package target

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Whoever may write an ElasticService in a namespace scales nothing beyond that.
func TestATargetOfTheWholeClusterIsNeitherReadNorScaled(t *testing.T) {
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer server.Close()
	pools := schema.GroupVersion{Group: "karpenter.sh", Version: "v1"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{pools})
	mapper.Add(pools.WithKind("NodePool"), meta.RESTScopeRoot)
	c, err := client.New(&rest.Config{Host: server.URL}, client.Options{Scheme: runtime.NewScheme(), Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	s := NewScaler(c, c)
	ref := Ref{ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "karpenter.sh/v1", Kind: "NodePool", Name: "default"}, Namespace: "tenant-a"}
	for name, do := range map[string]func() error{
		"Get": func() error { _, err := s.Get(t.Context(), ref); return err },
		"Set": func() error { return s.Set(t.Context(), ref, &autoscalingv1.Scale{}, 0) },
		"RaiseTo": func() error {
			_, err := s.RaiseTo(context.Background(), ref, Replicas{AtLeast: 1, FromZero: 1})
			return err
		},
		"Template": func() error { _, err := s.Template(t.Context(), ref); return err },
	} {
		err := do()
		if !errors.Is(err, ErrClusterScoped) || err.Error() != "NodePool default belongs to no namespace, and only objects of the ElasticService's own namespace are scaled" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if calls != 0 {
		t.Errorf("the API server was asked %d times", calls)
	}
	ref.Kind = "Pond"
	if _, err := s.Get(t.Context(), ref); !errors.Is(err, ErrNotFound) || err.Error() != "the API server knows no kind Pond in karpenter.sh/v1" {
		t.Errorf("of an unknown kind: %v", err)
	}
}
