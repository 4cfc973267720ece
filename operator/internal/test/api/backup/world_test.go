package backup_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/backup"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/disks/copies"
	"dormouse.dev/dormouse/operator/internal/disks/disklock"
	"dormouse.dev/dormouse/test/api/fixture"
)

const (
	// promptly is for what happens at once. It is long because machines that build are slow.
	promptly = 60 * time.Second
	// game is the GameType of each test, server its one place, and disk that one's disk.
	game, server, disk = "survival", "survival-0", "world"
)

// world is a namespace with a GameType, and controllers of Backups whose clock and passes are the test's.
type world struct {
	*fixture.Controlled
	t          testing.TB
	table      *disklock.Table
	reconciler *backup.Reconciler
	planner    *backup.Planner

	mu sync.Mutex
	// released and denied count what the table told.
	released, denied int
}

// kinds are those whose cache must be current for a test to look at what is done.
var kinds = []client.ObjectList{
	&v1alpha1.BackupList{}, &v1alpha1.RestoreList{}, &v1alpha1.GameTypeList{}, &v1alpha1.ServerList{}, &batchv1.JobList{}, &corev1.PodList{},
}

// withTemplate is a client that has the sidecar's PodTemplate, which is in the operator's namespace.
type withTemplate struct{ client.Client }

func (c withTemplate) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if t, ok := o.(*corev1.PodTemplate); ok {
		t.Template.Spec.Containers = []corev1.Container{{Name: "dormouse-sidecar", Image: "sidecar:1", Command: []string{"/sidecar"}}}
		return nil
	}
	return c.Client.Get(ctx, key, o, opts...)
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := prepared(t)
	w.Start()
	return w
}

// prepared gives a world whose manager isn't started yet.
func prepared(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, Controlled: fixture.NewControlled(t, "backup", func(r *http.Request) string { return r.Method + " " + r.URL.Path })}
	if err := errors.Join(copies.SetupIndexes(t.Context(), w.Manager.GetFieldIndexer()), backup.SetupIndexes(t.Context(), w.Manager.GetFieldIndexer())); err != nil {
		t.Fatal(err)
	}
	w.replaceLeader()
	for _, o := range []client.Object{&v1alpha1.Backup{}, &v1alpha1.Restore{}, &v1alpha1.GameType{}, &v1alpha1.Server{}, &batchv1.Job{}, &corev1.Pod{}} {
		if _, err := w.Manager.GetCache().GetInformer(t.Context(), o, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// replaceLeader makes controllers that remember nothing, and a table in which nobody holds anything.
func (w *world) replaceLeader() {
	count := func(n *int) func(types.NamespacedName) {
		return func(types.NamespacedName) {
			w.mu.Lock()
			defer w.mu.Unlock()
			*n++
		}
	}
	w.table = disklock.New(count(&w.released), count(&w.denied))
	c := withTemplate{w.Manager.GetClient()}
	w.reconciler = &backup.Reconciler{
		Client: c, Live: w.Manager.GetAPIReader(), Table: w.table, Events: w.Recorder, Now: w.Clock.Now,
		Copies: &copies.Finder{Client: c, Live: w.Manager.GetAPIReader()},
	}
	w.reconciler.Init()
	w.planner = &backup.Planner{Client: c, Live: w.Manager.GetAPIReader(), Events: w.Recorder, Now: w.Clock.Now}
	w.planner.Init()
}

// pass makes passes of the planner and of all Backups until they come to rest.
func (w *world) pass() {
	w.t.Helper()
	fixture.Eventually(w.t, promptly, "the cache has what the test wrote", func(context.Context) error {
		if !w.CacheIsCurrent(kinds...) { //nolint:contextcheck // it has the test's
			return errors.New("it is late")
		}
		return nil
	})
	unchanged := 0
	fixture.Eventually(w.t, promptly, "the controllers come to rest", func(ctx context.Context) error {
		w.Writes.Take()
		if _, err := w.planner.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: w.Namespace, Name: server}}); err != nil {
			return err
		}
		for _, b := range w.backups() { //nolint:contextcheck // it has the test's
			if _, err := w.reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&b)}); err != nil {
				return err
			}
		}
		did := w.Writes.Take()
		if current := w.CacheIsCurrent(kinds...); len(did) > 0 || !current { //nolint:contextcheck // it has the test's
			unchanged = 0
			return fmt.Errorf("they made %v", did)
		}
		if unchanged++; unchanged < 3 {
			return errors.New("it may be a chance")
		}
		return nil
	})
}

// after lets time pass, and then makes passes.
func (w *world) after(d time.Duration) {
	w.t.Helper()
	w.Clock.Pass(d)
	w.pass()
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	if err := w.Admin.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// gameType is the GameType, asleep.
func (w *world) gameType(change func(*v1alpha1.BackupSpec)) *v1alpha1.GameType {
	spec := &v1alpha1.BackupSpec{To: v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "nas"}}}
	if change != nil {
		change(spec)
	}
	return &v1alpha1.GameType{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: game},
		Spec: v1alpha1.GameTypeSpec{Backup: spec, Replicas: new(int32(1)), Template: v1alpha1.ServerTemplate{Spec: v1alpha1.ServerSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				SecurityContext: &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), FSGroup: new(int64(1001))},
				Containers:      []corev1.Container{{Name: "game", Image: "game:1"}},
			}},
			Storage: []v1alpha1.StorageSpec{{Name: disk, MountPath: "/world", Size: resource.MustParse("1Gi")}},
		}}},
	}
}

// setup makes the GameType, its disk, and the one for copies. The game has never run.
func (w *world) setup(change func(*v1alpha1.BackupSpec)) {
	w.t.Helper()
	w.create(w.gameType(change))
	for _, name := range []string{disks.ClaimName(server, disk), "nas"} {
		fixture.Claim(w.t, w.Admin, w.key(name), corev1.ReadWriteOnce)
	}
	w.Clock.Pass(time.Minute) // the API server's own clock goes on, too
}

// podWith makes a Pod with labels.
func (w *world) podWith(name string, labels map[string]string) {
	w.t.Helper()
	w.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "dormouse-sidecar", Image: "x"}}},
	})
}

// wake makes the game's Pod, if nobody holds the disks, as the controller of Servers does.
func (w *world) wake() bool {
	w.t.Helper()
	end, holder := w.table.Start(w.key(server))
	if holder != "" {
		return false
	}
	defer end()
	w.podWith(server, map[string]string{wellknown.ServerLabel: server, wellknown.DisksLabel: server, wellknown.GameTypeLabel: game})
	claim := &corev1.PersistentVolumeClaim{}
	if err := w.Admin.Get(w.t.Context(), w.key(disks.ClaimName(server, disk)), claim); err != nil {
		w.t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, wellknown.UsedAtAnnotation, w.Clock.Now().Format(time.RFC3339))
	if err := w.Admin.Update(w.t.Context(), claim); err != nil {
		w.t.Fatal(err)
	}
	return true
}

// sleep ends the game's Pod.
func (w *world) sleep() { w.t.Helper(); w.end(server) }

// end deletes a Pod at once, as its kubelet does.
func (w *world) end(pod string) {
	w.t.Helper()
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: pod}}
	if err := w.Admin.Delete(w.t.Context(), o, client.GracePeriodSeconds(0)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: name}
}

// byHand makes a person's Backup.
func (w *world) byHand(name string) {
	w.t.Helper()
	w.create(&v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}, Spec: v1alpha1.BackupRequest{Server: server}})
}

// backups are all, the oldest first.
func (w *world) backups() []v1alpha1.Backup {
	w.t.Helper()
	var list v1alpha1.BackupList
	if err := w.Admin.List(w.t.Context(), &list, client.InNamespace(w.Namespace)); err != nil {
		w.t.Fatal(err)
	}
	slices.SortStableFunc(list.Items, func(a, b v1alpha1.Backup) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return list.Items
}

func (w *world) get(name string) *v1alpha1.Backup {
	w.t.Helper()
	b := &v1alpha1.Backup{}
	if err := w.Admin.Get(w.t.Context(), w.key(name), b); err != nil {
		w.t.Fatal(err)
	}
	return b
}

// only is the one Backup that there is.
func (w *world) only() *v1alpha1.Backup {
	w.t.Helper()
	all := w.backups()
	if len(all) != 1 {
		w.t.Fatalf("there are %d Backups, want 1: %+v", len(all), all)
	}
	return &all[0]
}

// want checks how far a Backup is, and why.
func (w *world) want(name string, phase v1alpha1.CopyPhase, reason string) *v1alpha1.Backup {
	w.t.Helper()
	b := w.get(name)
	c := meta.FindStatusCondition(b.Status.Conditions, conditions.Complete)
	if b.Status.Phase != phase || c == nil || c.Reason != reason || (c.Status == metav1.ConditionTrue) != (phase == v1alpha1.CopyComplete) {
		w.t.Fatalf("Backup %s is %s: %+v; want %s, %s", name, b.Status.Phase, c, phase, reason)
	}
	return b
}

// jobs are the namespace's, the oldest first.
func (w *world) jobs() []batchv1.Job {
	w.t.Helper()
	var list batchv1.JobList
	if err := w.Admin.List(w.t.Context(), &list, client.InNamespace(w.Namespace)); err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(j batchv1.Job) bool { return !j.DeletionTimestamp.IsZero() })
}

// job is the one Job that there is.
func (w *world) job() *batchv1.Job {
	w.t.Helper()
	all := w.jobs()
	if len(all) != 1 {
		w.t.Fatalf("there are %d Jobs, want 1: %+v", len(all), all)
	}
	return &all[0]
}

// jobPod makes the Pod of a Job, as its controller does, and returns its name.
func (w *world) jobPod(job *batchv1.Job) string {
	w.t.Helper()
	return fixture.JobPod(w.t, w.Admin, job).Name
}

// ends has a Job end with what its program reports; its Pod goes with it, in the tests' world at once.
func (w *world) ends(job *batchv1.Job, report string, succeeded bool) {
	w.t.Helper()
	var pods corev1.PodList
	if err := w.Admin.List(w.t.Context(), &pods, client.InNamespace(w.Namespace), client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)}); err != nil {
		w.t.Fatal(err)
	}
	if len(pods.Items) == 0 {
		pods.Items = []corev1.Pod{*fixture.JobPod(w.t, w.Admin, job)}
	}
	fixture.EndJob(w.t, w.Admin, job, &pods.Items[0], report, succeeded)
}

// good is what the program reports of a copy.
const good = `{"bytes":2048,"files":3,"sha256":"ab12","disks":["world"]}`
