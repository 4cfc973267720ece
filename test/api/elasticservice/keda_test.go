package elasticservice_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// KEDA's annotations, and Dormouse's beside them.
const (
	paused         = "autoscaling.keda.sh/paused"
	pausedReplicas = "autoscaling.keda.sh/paused-replicas"
	pausedBy       = "dormouse.dev/paused-by"
)

// kedaDefinition is what matters here of KEDA's ScaledObjects.
const kedaDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: scaledobjects.keda.sh}
spec:
  group: keda.sh
  scope: Namespaced
  names: {kind: ScaledObject, listKind: ScaledObjectList, plural: scaledobjects, singular: scaledobject}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema: {type: object, required: [spec], x-kubernetes-preserve-unknown-fields: true}
`

// useKEDA has the operator know ScaledObjects, whichever test comes first.
func (w *world) useKEDA() {
	w.t.Helper()
	installKEDA(w.t)
	crdServed.Do(func() {
		w.elastic("asks-for-keda", byKEDA)
		fixture.Eventually(w.t, afterElection, "the operator knows ScaledObjects", func(ctx context.Context) error {
			es := &v1alpha1.ElasticService{}
			if err := w.read(ctx, "asks-for-keda", es); err != nil {
				return err
			}
			if c := meta.FindStatusCondition(es.Status.Conditions, conditions.AutoscalerReady); c == nil || c.Reason == reasons.AutoscalerNotInstalled {
				// It looks again now and then, and at each change.
				changed := es.DeepCopy()
				changed.Labels = map[string]string{"looked-at": es.ResourceVersion}
				return errors.Join(fmt.Errorf("the condition is %v", c), w.c.Patch(ctx, changed, client.MergeFrom(es)))
			}
			return nil
		})
		w.delete("asks-for-keda")
	})
}

// crdServed is for the first that waits for it.
var crdServed sync.Once

// installKEDA has the API server know ScaledObjects.
func installKEDA(t *testing.T) {
	t.Helper()
	installDefinition(t, kedaDefinition)
}

// installDefinition has the API server know a kind.
func installDefinition(t *testing.T, definition string) {
	t.Helper()
	crd := &unstructured.Unstructured{Object: parse(t, definition)}
	if err := cluster.client.Create(t.Context(), crd); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("install %s: %v", crd.GetName(), err)
	}
	fixture.Eventually(t, promptly, crd.GetName()+" is established", func(ctx context.Context) error {
		if err := cluster.client.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return fmt.Errorf("read it: %w", err)
		}
		list, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		for _, c := range list {
			if c, ok := c.(map[string]any); ok && c["type"] == string(apiextensionsv1.Established) && c["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", list)
	})
}

// removeKEDA has the API server know none.
func removeKEDA(t *testing.T) {
	t.Helper()
	removeDefinition(t, kedaDefinition)
}

// removeDefinition has the API server forget a kind.
func removeDefinition(t *testing.T, definition string) {
	t.Helper()
	crd := &unstructured.Unstructured{Object: parse(t, definition)}
	fixture.Eventually(t, promptly, crd.GetName()+" is gone", func(ctx context.Context) error {
		if err := cluster.client.Delete(ctx, crd.DeepCopy()); !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete it: %w", err)
		}
		return nil
	})
}

// scaledObject is a ScaledObject of the Deployment of its name, with a minReplicaCount.
func (w *world) scaledObject(name string, least int64, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	w.t.Helper()
	w.useKEDA()
	so := manifest(name, least)
	for _, f := range change {
		f(so)
	}
	w.create(so)
	return so
}

// manifest is a ScaledObject as its owner has it in a repository.
func manifest(name string, least int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"scaleTargetRef": map[string]any{"name": name}, "minReplicaCount": least, "maxReplicaCount": int64(10),
			"triggers": []any{map[string]any{"type": "cron"}},
		},
	}}
}

func annotated(annotations map[string]string) func(*unstructured.Unstructured) {
	return func(so *unstructured.Unstructured) { so.SetAnnotations(annotations) }
}

// byKEDA has an ElasticService name the ScaledObject of its Deployment's name.
func byKEDA(es *v1alpha1.ElasticService) {
	es.Spec.Autoscaler = &v1alpha1.Autoscaler{Kind: v1alpha1.AutoscalerKEDA, Name: es.Spec.ScaleTargetRef.Name}
}

// readScaledObject reads a ScaledObject as it is now.
func (w *world) readScaledObject(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	so := manifest(name, 0)
	return so, w.read(ctx, name, so)
}

// wantAnnotations waits until a ScaledObject has these annotations and no others.
func (w *world) wantAnnotations(name string, want map[string]string) {
	w.t.Helper()
	fixture.Eventually(w.t, promptly, "annotations of ScaledObject "+name, func(ctx context.Context) error {
		so, err := w.readScaledObject(ctx, name)
		if err != nil {
			return err
		}
		if got := so.GetAnnotations(); !maps.Equal(got, want) {
			return fmt.Errorf("they are %v, want %v", got, want)
		}
		return nil
	})
}

// pausedFor are the annotations of a pause that Dormouse makes.
func pausedFor(es *v1alpha1.ElasticService) map[string]string {
	return map[string]string{paused: "true", pausedBy: string(es.UID)}
}

// playKEDA does to a Deployment what KEDA does by its ScaledObject, ten times a second: it has at
// least minReplicaCount replicas, unless the ScaledObject is paused. With a number to pause at it
// has that.
func (w *world) playKEDA(name string) {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			so, err := w.readScaledObject(ctx, name)
			if err != nil {
				continue
			}
			least, _, _ := unstructured.NestedInt64(so.Object, "spec", "minReplicaCount")
			annotations := so.GetAnnotations()
			if at, ok := annotations[pausedReplicas]; ok {
				n, _ := strconv.ParseInt(at, 10, 32)
				w.kedaScales(ctx, name, func(is int32) bool { return is != int32(n) }, int32(n))
			} else if annotations[paused] != "true" {
				w.kedaScales(ctx, name, func(is int32) bool { return is < int32(least) }, int32(least))
			}
		}
	}()
	w.t.Cleanup(func() { stop(); <-ended })
}

// kedaScales scales a Deployment whose replicas are wrong. Whoever was faster is left alone.
func (w *world) kedaScales(ctx context.Context, name string, wrong func(int32) bool, to int32) {
	d := newDeployment(w.ns, name)
	scale := &autoscalingv1.Scale{}
	if w.c.SubResource("scale").Get(ctx, d, scale) != nil || !wrong(scale.Spec.Replicas) {
		return
	}
	scale.Spec.Replicas = to
	_ = w.c.SubResource("scale").Update(ctx, d, client.WithSubResourceBody(scale))
}

// applyAs applies an object as another tool would.
func (w *world) applyAs(owner string, so *unstructured.Unstructured) {
	w.t.Helper()
	so.SetNamespace(w.ns)
	if err := w.c.Apply(w.t.Context(), client.ApplyConfigurationFromUnstructured(so), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		w.t.Fatalf("apply ScaledObject %s as %s: %v", so.GetName(), owner, err)
	}
}

// revisionOf is when an object was last written.
func revisionOf(t *testing.T, o metav1.Object) uint64 {
	t.Helper()
	revision, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatalf("read the revision of %s: %v", o.GetName(), err)
	}
	return revision
}
