package patch

import (
	"context"
	"encoding/json"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestAStatusIsWrittenWithItsChangesAlone(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	server := &v1alpha1.Server{}
	server.Namespace, server.Name, server.Labels = "games", "arena", map[string]string{"app": "arena"}
	server.Spec.Replicas = new(int32(1))
	server.Status.NodeName, server.Status.PodName = "a", "arena"
	var sent string
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(server).WithStatusSubresource(server).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			data, err := p.Data(o)
			sent = string(data)
			if err != nil {
				return err
			}
			return c.SubResource(subresource).Patch(ctx, o, p, opts...)
		},
	}).Build()
	original := &v1alpha1.Server{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(server), original); err != nil {
		t.Fatal(err)
	}
	stale := original.DeepCopy()
	if wrote, err := Status(t.Context(), c, original, original.DeepCopy()); wrote || err != nil || sent != "" {
		t.Errorf("a status that is the same was written: %t, %v, %s", wrote, err, sent)
	}
	changed := original.DeepCopy()
	changed.Status.NodeName, changed.Status.PodName, changed.Status.Replicas = "b", "", 1
	wrote, err := Status(t.Context(), c, original, changed)
	if want := `{"metadata":{"resourceVersion":"` + original.ResourceVersion + `"},"status":{"nodeName":"b","podName":null,"replicas":1}}`; !wrote || err != nil || sent != want {
		t.Errorf("wrote %t, %v:\n%s, want\n%s", wrote, err, sent, want)
	}
	// What the API server has is in the object then, spec and all.
	if changed.ResourceVersion == original.ResourceVersion || *changed.Spec.Replicas != 1 || changed.Labels["app"] != "arena" || changed.Status.NodeName != "b" {
		t.Errorf("the object after the write: %+v", changed)
	}
	late := stale.DeepCopy()
	late.Status.NodeName = "c"
	if _, err := Status(t.Context(), c, stale, late); !apierrors.IsConflict(err) || late.Status.NodeName != "c" {
		t.Errorf("a status on top of another write: %v, want a conflict, and is %+v", err, late.Status)
	}
	fresh := server.DeepCopy()
	fresh.ResourceVersion = ""
	if _, err := Status(t.Context(), c, fresh, late); err == nil {
		t.Error("a status was written whatever is there")
	}
}

// olderDefinition answers as an API server does whose definition of the kind doesn't have the field podName.
type olderDefinition struct{ client.SubResourceWriter }

func (olderDefinition) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return json.Unmarshal([]byte(`{"metadata":{"resourceVersion":"2"},"status":{"nodeName":"b"}}`), o)
}

type olderCluster struct{ client.Client }

func (olderCluster) Status() client.SubResourceWriter { return olderDefinition{} }

// Who goes by what it wrote, and not by what is kept, would do something else after its next start.
func TestWhatAnOlderDefinitionDropsIsGone(t *testing.T) {
	t.Parallel()
	original := &v1alpha1.Server{}
	original.Namespace, original.Name, original.ResourceVersion = "games", "arena", "1"
	changed := original.DeepCopy()
	changed.Status.NodeName, changed.Status.PodName = "b", "arena"
	if wrote, err := Status(t.Context(), olderCluster{}, original, changed); !wrote || err != nil {
		t.Fatalf("wrote %t, %v", wrote, err)
	}
	if changed.Status.NodeName != "b" || changed.Status.PodName != "" || changed.Name != "arena" {
		t.Errorf("the object after the write: %+v", changed)
	}
}
