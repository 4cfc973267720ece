package files_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/disks/disklock"
	"dormouse.dev/dormouse/operator/internal/serverfiles"
	"dormouse.dev/dormouse/test/api/fixture"
)

const (
	// promptly is for what happens at once. It is long because machines that build are slow.
	promptly = 30 * time.Second
	// name is the Server or the GameType of each test.
	name = "survival"
)

// world is a namespace, and the controller of files, whose passes are the test's.
type world struct {
	*fixture.Controlled
	t          *testing.T
	reconciler *serverfiles.Reconciler
	table      *disklock.Table
	// gameType is set where the passes are the GameType's.
	gameType bool
}

// kinds are those whose cache must be current for a test to look at what is done.
var kinds = []client.ObjectList{&v1alpha1.ServerList{}, &v1alpha1.GameTypeList{}, &v1alpha1.ElasticServiceList{}, &corev1.ServiceList{}, &corev1.PodList{}}

func newWorld(t *testing.T) *world {
	t.Helper()
	byObject, err := serverfiles.CachedObjects()
	if err != nil {
		t.Fatal(err)
	}
	sidecar := map[client.Object]cache.ByObject{&corev1.PodTemplate{}: {Namespaces: map[string]cache.Config{fixture.SystemNamespace: {}}}}
	w := &world{t: t, table: disklock.New(func(types.NamespacedName) {}, func(types.NamespacedName) {}), Controlled: fixture.NewControlled(t, "files", func(r *http.Request) string { return r.Method + " " + r.URL.Path }, byObject, sidecar)}
	if err := fixture.Install(t.Context(), w.Admin, "sidecar"); err != nil {
		t.Fatal(err)
	}
	if err := serverfiles.SetupIndexes(t.Context(), w.Manager.GetFieldIndexer()); err != nil {
		t.Fatal(err)
	}
	w.reconciler = &serverfiles.Reconciler{
		Client: w.Manager.GetClient(), Live: w.Manager.GetAPIReader(), Events: w.Recorder, Now: w.Clock.Now, Disks: w.table,
		SidecarTemplate: types.NamespacedName{Namespace: fixture.SystemNamespace, Name: "dormouse-sidecar"},
	}
	w.reconciler.Init()
	for _, o := range []client.Object{&v1alpha1.Server{}, &v1alpha1.GameType{}, &v1alpha1.ElasticService{}, &corev1.Service{}, &corev1.Pod{}, &appsv1.Deployment{}, &corev1.PodTemplate{}} {
		if _, err := w.Manager.GetCache().GetInformer(t.Context(), o, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
	}
	w.Start()
	return w
}

// reconcile makes one pass.
func (w *world) reconcile() {
	w.t.Helper()
	pass := w.reconciler.ReconcileServer
	if w.gameType {
		pass = w.reconciler.ReconcileGameType
	}
	if _, err := pass(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.Namespace, Name: name}}); err != nil {
		w.t.Fatalf("reconcile: %v", err)
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

// settled makes passes until the cache shows what the API server has and nothing more is written.
// It returns what was.
func (w *world) settled() map[string]int {
	w.t.Helper()
	all, unchanged := map[string]int{}, 0
	w.eventually("the controller comes to rest", func() error {
		did := w.Writes.Take()
		for what, n := range did {
			all[what] += n
		}
		if len(did) > 0 || !w.CacheIsCurrent(kinds...) || !w.deploymentsAreCurrent() {
			unchanged = 0
			return fmt.Errorf("it made %v", did)
		}
		if unchanged++; unchanged < 3 {
			return errors.New("it may be a chance")
		}
		return nil
	})
	return all
}

// deploymentsAreCurrent looks at those that the cache is to have.
func (w *world) deploymentsAreCurrent() bool {
	w.t.Helper()
	versions := func(r client.Reader) string {
		var list appsv1.DeploymentList
		if err := r.List(w.t.Context(), &list, client.InNamespace(w.Namespace), client.HasLabels{"dormouse.dev/files"}); err != nil {
			w.t.Fatal(err)
		}
		var all []string
		for _, d := range list.Items {
			all = append(all, d.Name+" "+d.ResourceVersion)
		}
		return strings.Join(all, ",")
	}
	live := versions(w.Admin)
	cached := versions(w.Manager.GetClient())
	return len(live) == len(cached) && strings.Count(live, ",") == strings.Count(cached, ",") && sameWords(live, cached)
}

func sameWords(a, b string) bool {
	for word := range strings.SplitSeq(a, ",") {
		if !strings.Contains(","+b+",", ","+word+",") {
			return false
		}
	}
	return true
}

func spec() v1alpha1.ServerSpec {
	s := v1alpha1.ServerSpec{
		Running: new(false),
		Storage: []v1alpha1.StorageSpec{{Name: "world", MountPath: "/data", Size: resource.MustParse("1Gi")}},
	}
	s.Template.Spec.Containers = []corev1.Container{{Name: "game", Image: "game:1"}}
	return s
}

// server makes the Server, and waits until the controller has made what it asks for.
func (w *world) server(change func(*v1alpha1.Server)) *v1alpha1.Server {
	w.t.Helper()
	s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}, Spec: spec()}
	s.Spec.Files = &v1alpha1.FilesSpec{Secret: "sftp"}
	if change != nil {
		change(s)
	}
	w.create(s)
	w.settled()
	return s
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	if err := w.Admin.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// change edits an object as a person does, and makes passes until nothing is to be done.
func change[O client.Object](w *world, o O, key string, edit func(O)) map[string]int {
	w.t.Helper()
	w.get(key, o)
	before, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		w.t.Fatalf("%T", o)
	}
	edit(o)
	if err := w.Admin.Patch(w.t.Context(), o, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
	return w.settled()
}

// status edits an object's status as its controller does.
func status[O client.Object](w *world, o O, key string, edit func(O)) {
	w.t.Helper()
	w.get(key, o)
	before, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		w.t.Fatalf("%T", o)
	}
	edit(o)
	if err := w.Admin.Status().Patch(w.t.Context(), o, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
	w.settled()
}

func (w *world) get(key string, o client.Object) {
	w.t.Helper()
	if err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: key}, o); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) there(key string, o client.Object) bool {
	w.t.Helper()
	err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: key}, o)
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	return err == nil
}

// wantAll checks that the three objects of a Server are there, or none.
func (w *world) wantAll(server string, want bool) {
	w.t.Helper()
	for _, o := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &v1alpha1.ElasticService{}} {
		if got := w.there(server+"-files", o); got != want {
			w.t.Errorf("%T %s-files is there: %t, want %t", o, server, got, want)
		}
	}
}

func (w *world) replicas(server string) int32 {
	w.t.Helper()
	d := &appsv1.Deployment{}
	w.get(server+"-files", d)
	return *d.Spec.Replicas
}

// scale scales as an ElasticService does.
func (w *world) scale(server string, to int32) {
	w.t.Helper()
	d := &appsv1.Deployment{}
	w.get(server+"-files", d)
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, to))
	if err := w.Admin.SubResource("scale").Patch(w.t.Context(), d, patch); err != nil {
		w.t.Fatal(err)
	}
}

// condition is FilesServed of the Server or the GameType.
func (w *world) condition() *metav1.Condition {
	w.t.Helper()
	if w.gameType {
		gt := &v1alpha1.GameType{}
		w.get(name, gt)
		return meta.FindStatusCondition(gt.Status.Conditions, conditions.FilesServed)
	}
	s := &v1alpha1.Server{}
	w.get(name, s)
	return meta.FindStatusCondition(s.Status.Conditions, conditions.FilesServed)
}

func (w *world) wantCondition(status metav1.ConditionStatus, reason, says string) {
	w.t.Helper()
	c := w.condition()
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, says) {
		w.t.Errorf("FilesServed is %+v, want %s %s %q", c, status, reason, says)
	}
}
