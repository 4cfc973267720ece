package gametype_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/fleet"
	"dormouse.dev/dormouse/operator/internal/gametype"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/test/api/fixture"
)

const (
	// promptly is for what happens at once. It is long because machines that build
	// are slow.
	promptly = 30 * time.Second
	// game is the GameType of each test.
	game = "duel"
)

// world is a namespace with one GameType, and a controller of GameTypes whose clock
// and passes are the test's.
type world struct {
	*fixture.Controlled
	t          *testing.T
	reconciler *gametype.Reconciler
	// fleets is the real controller of Fleets; nil where the test stands in for it.
	fleets *fleet.Reconciler
}

// kinds are those whose cache must be current for a test to look at what is done.
var kinds = []client.ObjectList{
	&v1alpha1.GameTypeList{}, &v1alpha1.FleetList{}, &v1alpha1.ServerList{}, &v1alpha1.ElasticServiceList{}, &corev1.ServiceList{},
	&v1alpha1.GameAutoscalerList{},
}

// newWorld gives a world whose passes are the test's.
func newWorld(t *testing.T, realFleets bool) *world {
	t.Helper()
	w := &world{t: t, Controlled: fixture.NewControlled(t, "gametype", func(r *http.Request) string { return r.Method + " " + r.URL.Path })}
	indexer := index.Small{Cache: w.Manager.GetCache()}
	if err := errors.Join(fleet.SetupIndexes(t.Context(), indexer), gametype.SetupIndexes(t.Context(), indexer), index.Setup(t.Context(), indexer)); err != nil {
		t.Fatal(err)
	}
	w.reconciler = &gametype.Reconciler{Client: w.Manager.GetClient(), Events: w.Recorder, Now: w.Clock.Now}
	w.reconciler.Init()
	if realFleets {
		w.fleets = &fleet.Reconciler{Client: w.Manager.GetClient(), Servers: w.Servers, Events: events.NewFakeRecorder(10000), Now: w.Clock.Now}
		w.fleets.Init()
	}
	for _, o := range []client.Object{&v1alpha1.GameType{}, &v1alpha1.Fleet{}, &v1alpha1.Server{}, &v1alpha1.ElasticService{}, &corev1.Service{}, &v1alpha1.GameAutoscaler{}} {
		if _, err := w.Manager.GetCache().GetInformer(t.Context(), o, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
	}
	w.Start()
	return w
}

// reconcile makes one pass, and one of each Fleet.
func (w *world) reconcile() {
	w.t.Helper()
	if _, err := w.reconciler.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.Namespace, Name: game}}); err != nil {
		w.t.Fatalf("reconcile: %v", err)
	}
	if w.fleets == nil {
		return
	}
	for _, f := range w.all() {
		if _, err := w.fleets.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&f)}); err != nil {
			w.t.Fatalf("reconcile Fleet %s: %v", f.Name, err)
		}
	}
}

// eventually makes passes until check returns nil.
func (w *world) eventually(what string, check func() error) {
	w.t.Helper()
	pass := func() error {
		w.reconcile()
		return check()
	}
	fixture.Eventually(w.t, promptly, what, func(context.Context) error { return pass() })
}

// settled makes passes until the cache shows what the API server has and nothing
// more is written.
func (w *world) settled() {
	w.t.Helper()
	unchanged := 0
	w.eventually("the controller comes to rest", func() error {
		if did := w.Writes.Take(); len(did) > 0 || !w.CacheIsCurrent(kinds...) {
			unchanged = 0
			return fmt.Errorf("it made %v", did)
		}
		if unchanged++; unchanged < 3 {
			return errors.New("it may be a chance")
		}
		return nil
	})
}

// create makes the GameType, of three Servers and updated one by one, and waits
// until the controller has made what it asks for.
func (w *world) create(change func(*v1alpha1.GameType)) *v1alpha1.GameType {
	w.t.Helper()
	gt := &v1alpha1.GameType{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: game},
		Spec: v1alpha1.GameTypeSpec{
			Replicas: new(int32(3)),
			Update:   v1alpha1.UpdateSpec{MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0))},
			Template: v1alpha1.ServerTemplate{
				Spec: v1alpha1.ServerSpec{
					Ports: []v1alpha1.ServerPort{
						{Name: "game", ContainerPort: 7777, Protocol: v1alpha1.ServerProtocolTCPUDP},
						{Name: "query", ContainerPort: 7778, Protocol: v1alpha1.ServerProtocolUDP},
					},
					Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game:1"}}}},
				},
			},
		},
	}
	if change != nil {
		change(gt)
	}
	if err := w.Admin.Create(w.t.Context(), gt); err != nil {
		w.t.Fatal(err)
	}
	w.settled()
	return w.gameType()
}

// change edits the GameType, and waits until the controller has nothing to do.
func (w *world) change(change func(*v1alpha1.GameType)) {
	w.t.Helper()
	gt := w.gameType()
	before := gt.DeepCopy()
	change(gt)
	if err := w.Admin.Patch(w.t.Context(), gt, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
	w.settled()
}

// image edits the template.
func (w *world) image(image string) {
	w.t.Helper()
	w.change(func(gt *v1alpha1.GameType) { gt.Spec.Template.Spec.Template.Spec.Containers[0].Image = image })
}

func (w *world) gameType() *v1alpha1.GameType {
	w.t.Helper()
	gt := &v1alpha1.GameType{}
	w.get(game, gt)
	return gt
}

func (w *world) get(name string, o client.Object) {
	w.t.Helper()
	if err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: name}, o); err != nil {
		w.t.Fatal(err)
	}
}

// there reports whether there is an object of the GameType's name.
func (w *world) there(o client.Object) bool {
	w.t.Helper()
	err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: game}, o)
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	return err == nil
}

func (w *world) all() []v1alpha1.Fleet {
	w.t.Helper()
	var list v1alpha1.FleetList
	if err := w.Admin.List(w.t.Context(), &list, client.InNamespace(w.Namespace)); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// of is the Fleet of an image; nil where there is none.
func (w *world) of(image string) *v1alpha1.Fleet {
	w.t.Helper()
	for _, f := range w.all() {
		if f.Spec.Template.Spec.Template.Spec.Containers[0].Image == image {
			return &f
		}
	}
	return nil
}

// replicas are what the Fleets of some images are to have.
func (w *world) replicas(images ...string) string {
	w.t.Helper()
	var all []string
	for _, image := range images {
		if f := w.of(image); f == nil {
			all = append(all, "-")
		} else {
			all = append(all, fmt.Sprint(*f.Spec.Replicas))
		}
	}
	return strings.Join(all, " ")
}

// wantReplicas checks them.
func (w *world) wantReplicas(want string, images ...string) {
	w.t.Helper()
	if got := w.replicas(images...); got != want {
		w.t.Fatalf("the Fleets of %v are to have %s Servers, want %s", images, got, want)
	}
}

// is says how a Fleet is, as its own controller does, and waits until the controller
// has nothing more to do.
func (w *world) is(image string, active, ready, draining int32) {
	w.t.Helper()
	f := w.of(image)
	before := f.DeepCopy()
	f.Status.ObservedGeneration = f.Generation
	f.Status.Replicas, f.Status.ReadyReplicas, f.Status.DrainingReplicas = active, ready, draining
	if ready > 0 && f.Status.FirstReadyTime == nil {
		f.Status.FirstReadyTime = &metav1.Time{Time: w.Clock.Now()}
	}
	ok := condition.True(conditions.Ready, reasons.OK, "All are ready.")
	if ready < *f.Spec.Replicas {
		ok = condition.False(conditions.Ready, reasons.ServersMissing, "The image can't be pulled.")
	}
	condition.SetAll(&f.Status.Conditions, f.Generation, metav1.Time{Time: w.Clock.Now()}, ok)
	if err := w.Admin.Status().Patch(w.t.Context(), f, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
	w.settled()
}

// obeys has a Fleet with as many active Servers as it is to have, of which so many
// are Ready.
func (w *world) obeys(image string, ready int32) {
	w.t.Helper()
	n := *w.of(image).Spec.Replicas
	w.is(image, n, min(n, ready), 0)
}

func (w *world) servers() []v1alpha1.Server {
	w.t.Helper()
	var list v1alpha1.ServerList
	if err := w.Admin.List(w.t.Context(), &list, client.InNamespace(w.Namespace)); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// plays has each Server Ready, with as many players.
func (w *world) plays(players int32) {
	w.t.Helper()
	for _, s := range w.servers() {
		before := s.DeepCopy()
		s.Status.State = v1alpha1.ServerReady
		s.Status.Players = &v1alpha1.PlayersStatus{Current: players, Capacity: 10}
		s.Status.DeletionAllowed = players == 0
		s.Status.Game = &v1alpha1.GameStatus{State: v1alpha1.GameReady, Reported: true}
		condition.SetAll(&s.Status.Conditions, s.Generation, metav1.Time{Time: w.Clock.Now()},
			condition.True(conditions.Ready, reasons.OK, "The game takes players."))
		if err := w.Admin.Status().Patch(w.t.Context(), &s, client.MergeFrom(before)); err != nil {
			w.t.Fatal(err)
		}
	}
	w.settled()
}

// guard takes the guard away from deleted Servers that nobody plays on, or that are
// to go by force.
func (w *world) guard() {
	w.t.Helper()
	for _, s := range w.servers() {
		if s.DeletionTimestamp.IsZero() || s.Status.Players != nil && s.Status.Players.Current > 0 && !s.Spec.Deletion.Force {
			continue
		}
		before := s.DeepCopy()
		s.Finalizers = slices.DeleteFunc(s.Finalizers, func(f string) bool { return f == wellknown.DeletionGuardFinalizer })
		if err := w.Admin.Patch(w.t.Context(), &s, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			w.t.Fatal(err)
		}
	}
}

// wantCondition checks the status, the reason and a part of the message.
func (w *world) wantCondition(kind string, status metav1.ConditionStatus, reason, part string) {
	w.t.Helper()
	c := meta.FindStatusCondition(w.gameType().Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, part) {
		w.t.Errorf("%s is %+v, want %s with reason %s and %q", kind, c, status, reason, part)
	}
}
