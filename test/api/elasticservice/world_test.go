package elasticservice_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/test/api/fixture"
)

// world is a namespace of one test's own, with all that happens in it recorded.
type world struct {
	t  *testing.T
	c  client.WithWatch
	ns string
	*recorder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "games-"}}
	if err := cluster.client.Create(t.Context(), ns); err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	w := &world{t: t, c: cluster.client, ns: ns.Name}
	w.recorder = record(t, cluster.client, ns.Name)
	t.Cleanup(func() {
		if t.Failed() {
			w.describe()
		}
		if err := w.abandon(); err != nil {
			t.Logf("let go of what is left: %v", err)
		}
	})
	return w
}

// describe shows the namespace's ElasticServices and what happened.
func (w *world) describe() {
	var list v1alpha1.ElasticServiceList
	// The test's own context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), promptly)
	defer cancel()
	if err := w.c.List(ctx, &list, client.InNamespace(w.ns)); err != nil {
		w.t.Logf("list ElasticServices: %v", err)
		return
	}
	for _, es := range list.Items {
		es.ManagedFields = nil
		text, _ := yaml.Marshal(es)
		w.t.Logf("ElasticService %s at the end:\n%s", es.Name, text)
	}
	w.t.Logf("what happened:\n%s", w.history())
}

// abandon lets go of what the test leaves behind, so that the operator has less
// to do for the others. The API server deletes a collection one by one.
func (w *world) abandon() error {
	ctx, cancel := context.WithTimeout(context.Background(), afterCollection)
	defer cancel()
	return errors.Join(
		w.c.DeleteAllOf(ctx, &corev1.Service{}, client.InNamespace(w.ns)),
		w.c.DeleteAllOf(ctx, &v1alpha1.ElasticService{}, client.InNamespace(w.ns)))
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	o.SetNamespace(w.ns)
	if err := w.c.Create(w.t.Context(), o); err != nil {
		w.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// edit changes an object that was read.
func (w *world) edit(o client.Object, change func()) {
	w.t.Helper()
	original := o.DeepCopyObject().(client.Object)
	change()
	if err := w.c.Patch(w.t.Context(), o, client.MergeFrom(original)); err != nil {
		w.t.Fatalf("change %T %s: %v", o, o.GetName(), err)
	}
}

// deployment is a target with a readiness probe.
func (w *world) deployment(name string, replicas int32, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	w.t.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "game", Image: "none",
					Ports: []corev1.ContainerPort{{Name: "game", ContainerPort: 25565}},
					ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
						TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("game")},
					}},
				}}},
			},
		},
	}
	for _, f := range change {
		f(d)
	}
	w.create(d)
	return d
}

// service selects the pods of the Deployment of the same name.
func (w *world) service(name string, change ...func(*corev1.Service)) *corev1.Service {
	w.t.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Name: "game", Port: 25565, TargetPort: intstr.FromString("game")}},
		},
	}
	for _, f := range change {
		f(s)
	}
	w.create(s)
	return s
}

func selectorless(s *corev1.Service) { s.Spec.Selector = nil }

// elastic is an ElasticService for the Service and Deployment of its name.
func (w *world) elastic(name string, change ...func(*v1alpha1.ElasticService)) *v1alpha1.ElasticService {
	w.t.Helper()
	es := newElastic(name)
	for _, f := range change {
		f(es)
	}
	w.create(es)
	return es
}

func newElastic(name string) *v1alpha1.ElasticService {
	return &v1alpha1.ElasticService{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ElasticServiceSpec{
			Service:        name,
			ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
			SleepAfter:     &metav1.Duration{}, // never by itself, which needs no idle signal
		},
	}
}

func sleepAfter(d time.Duration) func(*v1alpha1.ElasticService) {
	return func(es *v1alpha1.ElasticService) { es.Spec.SleepAfter = &metav1.Duration{Duration: d} }
}

func handoffNever(es *v1alpha1.ElasticService) { es.Spec.Handoff = v1alpha1.HandoffNever }

// read reads an object as it is now.
func (w *world) read(ctx context.Context, name string, o client.Object) error {
	if err := w.c.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, o); err != nil {
		return fmt.Errorf("read %T %s: %w", o, name, err)
	}
	return nil
}

// want waits until an ElasticService passes every check, and returns it.
func (w *world) want(name string, within time.Duration, checks ...check) *v1alpha1.ElasticService {
	w.t.Helper()
	var es *v1alpha1.ElasticService
	fixture.Eventually(w.t, within, "ElasticService "+name, func(ctx context.Context) error {
		es = &v1alpha1.ElasticService{}
		if err := w.read(ctx, name, es); err != nil {
			return err
		}
		return all(es, checks)
	})
	return es
}

// stays fails when an ElasticService doesn't pass every check for a while.
func (w *world) stays(name string, during time.Duration, checks ...check) {
	w.t.Helper()
	fixture.Consistently(w.t, during, "ElasticService "+name, func(ctx context.Context) error {
		es := &v1alpha1.ElasticService{}
		if err := w.read(ctx, name, es); err != nil {
			return err
		}
		return all(es, checks)
	})
}

// check judges an ElasticService.
type check func(*v1alpha1.ElasticService) error

func all(es *v1alpha1.ElasticService, checks []check) error {
	for _, c := range checks {
		if err := c(es); err != nil {
			return err
		}
	}
	return nil
}

func inPhase(phase v1alpha1.Phase, mode v1alpha1.Mode) check {
	return func(es *v1alpha1.ElasticService) error {
		if es.Status.Phase != phase || es.Status.Mode != mode {
			return fmt.Errorf("phase %q, mode %q; want %s, %s", es.Status.Phase, es.Status.Mode, phase, mode)
		}
		return nil
	}
}

func hasCondition(kind string, status metav1.ConditionStatus, reason string) check {
	return func(es *v1alpha1.ElasticService) error {
		c := meta.FindStatusCondition(es.Status.Conditions, kind)
		if c == nil {
			return fmt.Errorf("no condition %s", kind)
		}
		if c.Status != status || c.Reason != reason || c.ObservedGeneration != es.Generation {
			return fmt.Errorf("condition %s is %s %s of generation %d (%s); want %s %s of generation %d",
				kind, c.Status, c.Reason, c.ObservedGeneration, c.Message, status, reason, es.Generation)
		}
		return nil
	}
}

func ready(es *v1alpha1.ElasticService) error {
	return hasCondition(conditions.Ready, metav1.ConditionTrue, reasons.OK)(es)
}

// scaleLobby sets the replicas of the Deployment lobby as a person would.
func (w *world) scaleLobby(replicas int32) {
	w.t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "lobby"}}
	s := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if err := w.c.SubResource("scale").Update(w.t.Context(), d, client.WithSubResourceBody(s)); err != nil {
		w.t.Fatalf("scale Deployment lobby to %d: %v", replicas, err)
	}
}

// replicas are what a Deployment wants.
func (w *world) replicas(name string) int32 {
	w.t.Helper()
	d := &appsv1.Deployment{}
	if err := w.read(w.t.Context(), name, d); err != nil {
		w.t.Fatal(err)
	}
	return ptr.Deref(d.Spec.Replicas, -1)
}

// clients says whom a resolver carries of this namespace's services.
func (w *world) clients(resolver int, sessions, queued int32) {
	r := cluster.resolvers.members[resolver]
	cluster.resolvers.change(w.ns, func(b *behaviour) {
		b.clients[r.name] = informerapi.Sessions{Sessions: sessions, Queued: queued, LastActive: time.Now()}
	})
}
