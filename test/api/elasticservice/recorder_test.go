package elasticservice_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/api/fixture"
)

// change is one write to an object. Revisions order writes to all kinds, since
// one etcd has them all.
type change struct {
	revision uint64
	at       time.Time
	kind     watch.EventType
	object   client.Object
}

// recorder watches a namespace.
type recorder struct {
	mu      sync.Mutex
	changes []change
}

// recorded are lists of the kinds that a recorder watches.
func recorded() []client.ObjectList {
	return []client.ObjectList{&v1alpha1.ElasticServiceList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}}
}

func record(t *testing.T, c client.WithWatch, namespace string) *recorder {
	t.Helper()
	r := &recorder{}
	for _, list := range recorded() {
		// Past the test's own end, so that a failure's history is whole.
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		w, err := c.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			cancel()
			t.Fatalf("watch %T: %v", list, err)
		}
		t.Cleanup(func() { w.Stop(); cancel() })
		go r.follow(w)
	}
	return r
}

func (r *recorder) follow(w watch.Interface) {
	for e := range w.ResultChan() {
		object, ok := e.Object.(client.Object)
		if !ok || e.Type == watch.Bookmark {
			continue
		}
		revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
		if err != nil {
			continue
		}
		r.mu.Lock()
		r.changes = append(r.changes, change{revision: revision, at: time.Now(), kind: e.Type, object: object})
		r.mu.Unlock()
	}
}

// latest is a revision that no write before has passed, whether that was seen yet or
// not.
func (w *world) latest() uint64 {
	w.t.Helper()
	var list corev1.ServiceList
	if err := w.c.List(w.t.Context(), &list, client.InNamespace(w.ns)); err != nil {
		w.t.Fatalf("list Services: %v", err)
	}
	revision, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil {
		w.t.Fatalf("read a list's revision: %v", err)
	}
	return revision
}

// firstAfter finds the first change after a revision that passes, by revision.
func (r *recorder) firstAfter(after uint64, pass func(change) bool) (change, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found change
	for _, c := range r.changes {
		if c.revision > after && (found.object == nil || c.revision < found.revision) && pass(c) {
			found = c
		}
	}
	return found, found.object != nil
}

// must waits for the first change after a revision that passes.
func (w *world) must(what string, within time.Duration, after uint64, pass func(change) bool) change {
	w.t.Helper()
	var found change
	fixture.Eventually(w.t, within, what, func(context.Context) error {
		var ok bool
		if found, ok = w.firstAfter(after, pass); !ok {
			return fmt.Errorf("no such change after revision %d", after)
		}
		return nil
	})
	return found
}

// count counts the changes after a revision that pass, up to now.
func (w *world) count(after uint64, pass func(change) bool) int {
	w.t.Helper()
	w.seeAll()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, c := range w.changes {
		if c.revision > after && pass(c) {
			n++
		}
	}
	return n
}

// seeAll waits until the recorder has seen the last write to each object that there is.
// Each kind has its own watch, and any of them may be behind what a read returned.
func (w *world) seeAll() {
	w.t.Helper()
	for _, list := range recorded() {
		if err := w.c.List(w.t.Context(), list, client.InNamespace(w.ns)); err != nil {
			w.t.Fatalf("list %T: %v", list, err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			version := o.(client.Object).GetResourceVersion()
			w.must(fmt.Sprintf("revision %s in %T", version, list), promptly, 0, func(c change) bool {
				return c.object.GetResourceVersion() == version
			})
			return nil
		})
		if err != nil {
			w.t.Fatalf("read %T: %v", list, err)
		}
	}
}

// writesTo passes every change of a Deployment's spec.
func writesTo(deployment string) func(change) bool {
	return func(c change) bool {
		d, ok := c.object.(*appsv1.Deployment)
		return ok && d.Name == deployment && c.kind == watch.Modified
	}
}

// toReplicas passes a write by which a Deployment wants so many.
func toReplicas(deployment string, replicas int32) func(change) bool {
	return func(c change) bool {
		return writesTo(deployment)(c) && ptr.Deref(c.object.(*appsv1.Deployment).Spec.Replicas, -1) == replicas
	}
}

// toPhase passes a write by which an ElasticService is in a phase.
func toPhase(name string, phase v1alpha1.Phase) func(change) bool {
	return func(c change) bool {
		es, ok := c.object.(*v1alpha1.ElasticService)
		return ok && es.Name == name && es.Status.Phase == phase && c.kind != watch.Deleted
	}
}

// isOurs passes a write to a slice that Dormouse writes for a Service.
func isOurs(c change, service string) bool {
	s, ok := c.object.(*discoveryv1.EndpointSlice)
	return ok && s.Labels[discoveryv1.LabelServiceName] == service && s.Labels[discoveryv1.LabelManagedBy] == wellknown.ManagedBy
}

// history is what happened, a line a change.
func (r *recorder) history() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, c := range r.changes {
		fmt.Fprintf(&b, "%s %d %s %T %s", c.at.Format("05.000"), c.revision, c.kind, c.object, c.object.GetName())
		switch o := c.object.(type) {
		case *v1alpha1.ElasticService:
			fmt.Fprintf(&b, " %s %s", o.Status.Phase, o.Status.Mode)
		case *appsv1.Deployment:
			fmt.Fprintf(&b, " replicas %d", ptr.Deref(o.Spec.Replicas, -1))
		case *discoveryv1.EndpointSlice:
			for _, e := range o.Endpoints {
				fmt.Fprintf(&b, " %v=%s", e.Addresses, stateOf(e))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
