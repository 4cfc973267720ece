package restore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks/copies"
	"dormouse.dev/dormouse/operator/internal/disks/disklock"
	"dormouse.dev/dormouse/operator/internal/gameserver"
	"dormouse.dev/dormouse/operator/internal/restore"
	"dormouse.dev/dormouse/operator/internal/udpports"
	"dormouse.dev/dormouse/test/api/fixture"
)

// promptly is for what happens within some looks of the controllers. It is long because machines
// that build are slow.
const promptly = 40 * time.Second

// world is a namespace with a node for its Pods.
type world struct {
	*testing.T
	admin client.Client
	ns    string
	calls *calls
}

// calls counts what leaders read from the API server besides watching, by resource.
type calls struct {
	mu    sync.Mutex
	reads map[string]int
	inner http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && r.URL.Query().Get("watch") == "" {
		parts := strings.Split(r.URL.Path, "/")
		for i, part := range parts {
			if part == "namespaces" && i+2 < len(parts) {
				c.mu.Lock()
				c.reads[parts[i+2]]++
				c.mu.Unlock()
			}
		}
	}
	return c.inner.RoundTrip(r)
}

// take gives what was read since it was last taken.
func (c *calls) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.reads
	c.reads = map[string]int{}
	return taken
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme, err := fixture.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(fixture.Config(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "restore-"}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: fixture.SystemNamespace, Name: "sidecar"}}
	template.Template.Spec.Containers = []corev1.Container{{Name: "sidecar", Image: "sidecar:1"}}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fixture.SystemNamespace}}, template,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
	} {
		if err := admin.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	w := &world{T: t, admin: admin, ns: ns.Name, calls: &calls{reads: map[string]int{}}}
	return w
}

// lead starts the controllers, as a new leader does. What it returns ends them.
func (w *world) lead() (end func()) {
	w.Helper()
	as := fixture.Config(w)
	as.QPS = -1
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + fixture.SystemNamespace + ":" + fixture.OperatorAccount}
	as.Wrap(func(inner http.RoundTripper) http.RoundTripper { w.calls.inner = inner; return w.calls })
	scheme, err := fixture.Scheme()
	if err != nil {
		w.Fatal(err)
	}
	byObject := gameserver.CachedObjects(fixture.SystemNamespace)
	maps.Copy(byObject, copyjob.CachedObjects())
	mgr, err := ctrl.NewManager(as, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{w.ns: {}}, ByObject: byObject},
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		w.Fatal(err)
	}
	if err := w.setup(mgr); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("the manager ended with %v", err)
		}
	})
	w.Cleanup(end)
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		w.Fatal("the caches don't fill")
	}
	return end
}

// setup sets the controllers up as package setup does.
func (w *world) setup(mgr ctrl.Manager) error {
	ctx, indexer := w.Context(), mgr.GetFieldIndexer()
	if err := errors.Join(udpports.SetupIndexes(ctx, indexer), gameserver.SetupIndexes(ctx, indexer), copies.SetupIndexes(ctx, indexer), restore.SetupIndexes(ctx, indexer)); err != nil {
		return err
	}
	template := types.NamespacedName{Namespace: fixture.SystemNamespace, Name: "sidecar"}
	cluster := restore.Cluster{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), SidecarTemplate: template}
	finder := &copies.Finder{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	recorder := events.NewFakeRecorder(10000)
	r := &restore.Reconciler{Cluster: cluster, Events: recorder, Copies: finder}
	f := &restore.Filler{Cluster: cluster, Events: recorder, Copies: finder}
	s := &gameserver.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder, SidecarTemplate: template,
		OperatorURL: "http://operator", LowPort: 7000, HighPort: 7100, NodeLostAfter: time.Hour, Copies: finder, Filling: f,
	}
	table := disklock.New(s.Again, r.Denied)
	r.Disks, f.Disks, s.Disks, f.Changed = table, table, table, s.Again
	return errors.Join(s.Setup(mgr), r.Setup(mgr), f.Setup(mgr))
}

// wait waits until check returns nil.
func (w *world) wait(what string, check func() error) {
	w.Helper()
	fixture.Eventually(w, promptly, what, func(context.Context) error { return check() })
}

// stored is a Server with one disk.
func (w *world) stored(name string, change ...func(*v1alpha1.Server)) {
	w.Helper()
	s := &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: v1alpha1.ServerSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "game", Image: "game:1"}}}},
			Storage:  []v1alpha1.StorageSpec{{Name: "world", MountPath: "/world", Size: resource.MustParse("1Gi")}},
			Deletion: v1alpha1.DeletionSpec{Force: true},
		},
	}
	for _, f := range change {
		f(s)
	}
	if err := w.admin.Create(w.Context(), s); err != nil {
		w.Fatal(err)
	}
}

// server reads a Server.
func (w *world) server(name string) *v1alpha1.Server {
	w.Helper()
	s := &v1alpha1.Server{}
	if err := w.admin.Get(w.Context(), w.key(name), s); err != nil {
		w.Fatal(err)
	}
	return s
}

func (w *world) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.ns, Name: name}
}

// runs has the Server survival run, or stop.
func (w *world) runs(running bool) {
	w.Helper()
	s := w.server("survival")
	before := s.DeepCopy()
	s.Spec.Running = &running
	if err := w.admin.Patch(w.Context(), s, client.MergeFrom(before)); err != nil {
		w.Fatal(err)
	}
}

// sleeps stops the Server survival, and waits until its Pod is gone, as kubelet has it.
func (w *world) sleeps() {
	w.Helper()
	const name = "survival"
	w.runs(false)
	w.wait("Server "+name+" stops", func() error {
		pod := &corev1.Pod{}
		err := w.admin.Get(w.Context(), w.key(name), pod)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && !pod.DeletionTimestamp.IsZero() {
			err = client.IgnoreNotFound(w.admin.Delete(w.Context(), pod, client.GracePeriodSeconds(0)))
		}
		return errors.Join(err, errors.New("its Pod is there"))
	})
}

// pod waits for a Server's Pod.
func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{}
	w.wait("the Pod of Server "+name, func() error {
		if err := w.admin.Get(w.Context(), w.key(name), pod); err != nil {
			return fmt.Errorf("%w; the Server says %+v", err, w.server(name).Status.Conditions)
		}
		return nil
	})
	return pod
}

func (w *world) noPod(name string) {
	w.Helper()
	if err := w.admin.Get(w.Context(), w.key(name), &corev1.Pod{}); !apierrors.IsNotFound(err) {
		w.Errorf("Server %s has a Pod (%v)", name, err)
	}
}

// ready has a Server's game be Ready, as kubelet and the sidecar would say.
func (w *world) ready(name string) {
	w.Helper()
	pod := w.pod(name)
	err := w.admin.SubResource("binding").Create(w.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node"}})
	if err != nil {
		w.Fatal(err)
	}
	pod = w.pod(name)
	before := pod.DeepCopy()
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, "192.0.2.7", []corev1.PodIP{{IP: "192.0.2.7"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "game", Ready: true, State: running}}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: wellknown.SidecarContainer, Ready: true, Started: new(true), State: running}}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	if err := w.admin.Status().Patch(w.Context(), pod, client.MergeFrom(before)); err != nil {
		w.Fatal(err)
	}
	s := w.server(name)
	was := s.DeepCopy()
	s.Status.Game = &v1alpha1.GameStatus{State: v1alpha1.GameReady, PodUID: string(pod.UID), Reported: true}
	if err := w.admin.Status().Patch(w.Context(), s, client.MergeFrom(was)); err != nil {
		w.Fatal(err)
	}
	w.wait("Server "+name+" is Ready", func() error {
		if c := w.server(name).Status.Conditions; !meta.IsStatusConditionTrue(c, conditions.Ready) {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
}

// says waits until a Server's condition Ready has a sentence.
func (w *world) says(name, sentence string) {
	w.Helper()
	w.wait("Server "+name+" says "+sentence, func() error {
		if c := meta.FindStatusCondition(w.server(name).Status.Conditions, conditions.Ready); c == nil || !strings.Contains(c.Message, sentence) {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
}

// backup makes the Backup survival-1 of a Server's disk, which is complete.
func (w *world) backup(server string) {
	w.Helper()
	b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "survival-1"}, Spec: v1alpha1.BackupRequest{Server: server}}
	if err := w.admin.Create(w.Context(), b); err != nil {
		w.Fatal(err)
	}
	w.phase(b, v1alpha1.CopyComplete)
}

func (w *world) phase(b *v1alpha1.Backup, phase v1alpha1.CopyPhase) {
	w.Helper()
	before := b.DeepCopy()
	b.Status.Phase, b.Status.Disks, b.Status.SHA256 = phase, []string{"world"}, strings.Repeat("ab", 32)
	b.Status.To = &v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "copies"}}
	if err := w.admin.Status().Patch(w.Context(), b, client.MergeFrom(before)); err != nil {
		w.Fatal(err)
	}
}

// restore makes the Restore undo of that Backup for the Server survival.
func (w *world) restore() {
	w.Helper()
	err := w.admin.Create(w.Context(), &v1alpha1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "undo"}, Spec: v1alpha1.RestoreSpec{Server: "survival", Backup: "survival-1"},
	})
	if err != nil {
		w.Fatal(err)
	}
}

// restored waits until the Restore is as check wants it.
func (w *world) restored(what string, check func(*v1alpha1.Restore) bool) {
	w.Helper()
	w.wait("the Restore "+what, func() error {
		r := &v1alpha1.Restore{}
		if err := w.admin.Get(w.Context(), w.key("undo"), r); err != nil {
			return err
		}
		if !check(r) {
			return fmt.Errorf("its finalizers are %v, and its status is %+v", r.Finalizers, r.Status)
		}
		return nil
	})
}

func (w *world) restorePhase(phase v1alpha1.CopyPhase, sentence string) {
	w.Helper()
	w.restored("is "+string(phase), func(r *v1alpha1.Restore) bool {
		c := meta.FindStatusCondition(r.Status.Conditions, conditions.Complete)
		return r.Status.Phase == phase && c != nil && strings.Contains(c.Message, sentence)
	})
}

// job waits for a Job, and has its Pod run. It is as the controller of Jobs makes it.
func (w *world) job(name string) (*batchv1.Job, *corev1.Pod) {
	w.Helper()
	job := &batchv1.Job{}
	w.wait("Job "+name, func() error {
		err := w.admin.Get(w.Context(), w.key(name), job)
		if err == nil {
			return nil
		}
		var restores v1alpha1.RestoreList
		var servers v1alpha1.ServerList
		err = errors.Join(err, w.admin.List(w.Context(), &restores, client.InNamespace(w.ns)), w.admin.List(w.Context(), &servers, client.InNamespace(w.ns)))
		for _, r := range restores.Items {
			err = fmt.Errorf("%w; Restore %s is %s: %+v", err, r.Name, r.Status.Phase, r.Status.Conditions)
		}
		for _, s := range servers.Items {
			err = fmt.Errorf("%w; Server %s says %+v", err, s.Name, meta.FindStatusCondition(s.Status.Conditions, conditions.Ready))
		}
		return err
	})
	return job, fixture.JobPod(w, w.admin, job)
}

func (w *world) noJob(name string) {
	w.Helper()
	w.wait("there is no Job "+name, func() error {
		err := w.admin.Get(w.Context(), w.key(name), &batchv1.Job{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

// end ends a Job and its Pod with a report.
func (w *world) end(job *batchv1.Job, pod *corev1.Pod, report copyjob.Report) {
	w.Helper()
	said, err := json.Marshal(report)
	if err != nil {
		w.Fatal(err)
	}
	fixture.EndJob(w, w.admin, job, pod, string(said), report.Error == "")
}

// claim reads a Server's disk.
func (w *world) claim(server string) *corev1.PersistentVolumeClaim {
	w.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := w.admin.Get(w.Context(), w.key(server+"-world"), claim); err != nil {
		w.Fatal(err)
	}
	return claim
}
