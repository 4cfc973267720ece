package restore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
)

var survival = types.NamespacedName{Namespace: "games", Name: "survival"}

// table is who has which disks.
type table map[types.NamespacedName]string

func (t table) Hold(server types.NamespacedName, holder string) bool {
	if is, ok := t[server]; ok && is != holder {
		return false
	}
	t[server] = holder
	return true
}
func (table) Wanted(types.NamespacedName) bool                  { return false }
func (table) WaitForFiles(types.NamespacedName, time.Time) bool { return true }
func (t table) Release(server types.NamespacedName, holder string) {
	if t[server] == holder {
		delete(t, server)
	}
}

// nobody copies.
type nobody struct{}

func (nobody) Of(context.Context, types.NamespacedName) ([]string, error) { return nil, nil }

// filled is Server survival with a new disk that begins with another Server's, and the claim of it.
func filled(from *v1alpha1.DiskSource) (*v1alpha1.Server, *corev1.PersistentVolumeClaim) {
	s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival", UID: "survival"}}
	s.Spec.Storage = []v1alpha1.StorageSpec{{Name: "world", From: from}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: "survival-world", Annotations: map[string]string{wellknown.FilledAnnotation: ""},
	}}
	return s, claim
}

// fillJob is a Job that fills a disk of survival's and is between two tries. It stays when it is
// deleted, as one does whose Pods are to go first.
func fillJob(name string) *batchv1.Job {
	s, _ := filled(nil)
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: name, UID: types.UID(name), Finalizers: []string{metav1.FinalizerDeleteDependents},
		Labels:          map[string]string{wellknown.DisksLabel: "survival", copyjob.ManagedByLabel: wellknown.ManagedBy},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, v1alpha1.GroupVersion.WithKind("Server"))},
	}}
}

// fillerWith is a Filler with some objects, which counts whom it notified.
func fillerWith(t *testing.T, objects ...client.Object) (*Filler, table, *int) {
	t.Helper()
	notified, has := new(int), table{}
	return &Filler{
		Cluster: *clusterWith(t, objects...), Events: events.NewFakeRecorder(10), Disks: has, Copies: nobody{},
		Changed: func(types.NamespacedName) { *notified++ }, Now: func() time.Time { return noon.Time },
	}, has, notified
}

// pass1 is one pass of survival's.
func pass1(t *testing.T, f *Filler) reconcile.Result {
	t.Helper()
	result, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: survival})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// ends is whether a Job is being deleted.
func ends(t *testing.T, f *Filler, name string) bool {
	t.Helper()
	job := &batchv1.Job{}
	err := f.Live.Get(t.Context(), client.ObjectKey{Namespace: "games", Name: name}, job)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil && !job.DeletionTimestamp.IsZero()
}

func goes(t *testing.T, f *Filler, o client.Object) {
	t.Helper()
	if err := f.Live.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	if len(o.GetFinalizers()) == 0 {
		if err := f.Client.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return
	}
	o.SetFinalizers(nil)
	if err := f.Client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// A Job between two tries has no Pod, and makes one later: the game may only begin once it is gone.
func TestAJobThatIsNotToFillADiskAnyMoreEndsFirst(t *testing.T) {
	s, claim := filled(nil)
	job := fillJob("fill-survival-world-creative")
	f, has, notified := fillerWith(t, s, claim, job)
	creative := types.NamespacedName{Namespace: "games", Name: "creative"}
	has[survival], has[creative] = "Copy from Server creative", "Copy for survival"
	f.of(survival).held = map[types.NamespacedName]string{survival: has[survival], creative: has[creative]}
	if after := pass1(t, f).RequeueAfter; after == 0 || !ends(t, f, job.Name) {
		t.Errorf("its Job goes on, and it looks again after %s", after)
	}
	if len(has) != 2 || *notified != 0 {
		t.Errorf("the disks are %v though its Job is there", has)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: "x", Labels: job.Labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
	}}
	if err := f.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	goes(t, f, job)
	if pass1(t, f); len(has) != 2 || *notified != 0 {
		t.Errorf("the disks are %v though its Job's Pod is there", has)
	}
	goes(t, f, pod)
	if pass1(t, f); len(has) != 0 || *notified != 1 {
		t.Errorf("the disks are %v, and the Server was told %d times", has, *notified)
	}
}

// A new leader remembers nothing of what one before it began.
func TestANewLeaderEndsAJobThatIsNotToFillADiskAnyMore(t *testing.T) {
	s, claim := filled(nil)
	job := fillJob("fill-survival-world-creative")
	f, _, _ := fillerWith(t, s, claim, job)
	if after := pass1(t, f).RequeueAfter; after == 0 || !ends(t, f, job.Name) {
		t.Errorf("its Job goes on, and it looks again after %s", after)
	}
	ended := fillJob("fill-survival-logs-creative")
	ended.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
	f, _, _ = fillerWith(t, s, claim, ended)
	if after := pass1(t, f).RequeueAfter; after != 0 || !ends(t, f, ended.Name) {
		t.Errorf("for a Job that has ended it looks again after %s", after)
	}
}

// Another source's Job may begin only once the one before it is gone, which has the first source.
func TestAnotherSourceWaitsForTheJobOfTheOneBefore(t *testing.T) {
	s, claim := filled(&v1alpha1.DiskSource{Server: "other"})
	job := fillJob("fill-survival-world-creative")
	f, has, _ := fillerWith(t, s, claim, job)
	creative := types.NamespacedName{Namespace: "games", Name: "creative"}
	has[creative] = "Copy for survival"
	f.of(survival).held = map[types.NamespacedName]string{creative: has[creative]}
	if pass1(t, f); !ends(t, f, job.Name) || has[creative] == "" || len(has) != 1 || f.Why(survival) == "" {
		t.Errorf("the disks are %v, and it says %q", has, f.Why(survival))
	}
	goes(t, f, job)
	if pass1(t, f); has[creative] != "" {
		t.Errorf("the first source stays taken: %v", has)
	}
}

// What serves the files of the Server with the first disk makes way.
func TestAFillGetsItsTurnThoughSomebodyIsAlwaysConnected(t *testing.T) {
	s, claim := filled(&v1alpha1.DiskSource{Server: "other"})
	files := filesOf("other")
	f, _, _ := fillerWith(t, s, claim, files, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "other-world"}})
	if pass1(t, f); !strings.Contains(f.Why(survival), files.Name) {
		t.Errorf("it says %q", f.Why(survival))
	}
	if pass1(t, f); strings.Contains(f.Why(survival), files.Name) {
		t.Errorf("it says %q", f.Why(survival))
	}
}

// A Job that the API server refuses copies nothing: the Server whose disk it was to copy may wake.
func TestAFillThatIsRefusedKeepsNobodyAsleep(t *testing.T) {
	s, claim := filled(&v1alpha1.DiskSource{Server: "other"})
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "dormouse-system", Name: "sidecar"}}
	template.Template.Spec.Containers = []corev1.Container{{Name: "sidecar"}}
	f, has, _ := fillerWith(t, s, claim, template, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "other-world"}})
	f.SidecarTemplate = client.ObjectKeyFromObject(template)
	live, _ := f.Client.(client.WithWatch)
	f.Client = interceptor.NewClient(live, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			return apierrors.NewForbidden(batchv1.Resource("jobs"), o.GetName(), errors.New("exceeded quota: small"))
		},
	})
	after := pass1(t, f).RequeueAfter
	if why := f.Why(survival); !strings.Contains(why, "exceeded quota: small") || after != lackRetry {
		t.Errorf("it says %q, and looks again after %s", why, after)
	}
	if len(has) > 0 {
		t.Errorf("it has %v", has)
	}
}

// What copies an empty disk leaves the new one empty for good.
func TestADiskThatIsNotFilledIsNoSource(t *testing.T) {
	const lacks = "Disk world of Server other doesn't have yet what it begins with."
	unfilled, from := map[string]string{wellknown.FilledAnnotation: ""}, func(d v1alpha1.DiskSource) *v1alpha1.DiskSource { return &d }
	for name, c := range map[string]struct {
		noted map[string]string
		from  *v1alpha1.DiskSource
		gone  bool
		waits bool
	}{
		"it waits for a Backup":         {unfilled, from(v1alpha1.DiskSource{Backup: "x"}), false, true},
		"it waits for a Server":         {unfilled, from(v1alpha1.DiskSource{Server: "another"}), false, true},
		"each waits for the other":      {unfilled, from(v1alpha1.DiskSource{Server: "survival"}), false, true},
		"its Server is gone":            {unfilled, nil, true, true},
		"it is to begin empty now":      {unfilled, nil, false, false},
		"it is filled":                  {map[string]string{wellknown.FilledAnnotation: "backup/x"}, from(v1alpha1.DiskSource{Backup: "x"}), false, false},
		"it is filled, and nobody's":    {map[string]string{wellknown.FilledAnnotation: "backup/x"}, nil, true, false},
		"it was there before it had it": {nil, from(v1alpha1.DiskSource{Backup: "x"}), false, false},
	} {
		s, claim := filled(from(v1alpha1.DiskSource{Server: "other"}))
		objects := []client.Object{s, claim, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "other-world", Annotations: c.noted}}}
		if !c.gone {
			other, _ := filled(c.from)
			other.Name, other.UID = "other", "other"
			objects = append(objects, other)
		}
		f, has, _ := fillerWith(t, objects...)
		after := pass1(t, f).RequeueAfter
		if why := f.Why(survival); (why == lacks) != c.waits || why == "" || after != lackRetry {
			t.Errorf("%s: it says %q, and looks again after %s", name, why, after)
		}
		if len(has) != 0 {
			t.Errorf("%s: it has %v", name, has)
		}
	}
}

// By its name the disk is another Server's, whoever asks for it.
func TestAnotherServersDiskIsNoSource(t *testing.T) {
	s, claim := filled(&v1alpha1.DiskSource{Server: "other"})
	objects := []client.Object{s, claim, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: "other-world", Labels: disks.Labels("oth", nil),
	}}}
	f, has, _ := fillerWith(t, objects...)
	pass1(t, f)
	if why := f.Why(survival); !strings.Contains(why, "Server other has no disk world: ") || len(has) != 0 {
		t.Errorf("it says %q, and has %v", why, has)
	}
}

// A Server and a Backup of one name are two sources, and so are those of another Server.
func TestEachFillHasAJobOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range []struct {
		server, disk string
		from         v1alpha1.DiskSource
	}{
		{"x", "world", v1alpha1.DiskSource{Server: "a"}},
		{"x", "world", v1alpha1.DiskSource{Backup: "a"}},
		{"x", "world", v1alpha1.DiskSource{Server: "server-a"}},
		{"x-world", "server", v1alpha1.DiskSource{Server: "a"}},
	} {
		name := fillName(&disks.Set{Name: c.server}, &v1alpha1.StorageSpec{Name: c.disk, From: &c.from})
		if seen[name] {
			t.Errorf("%+v is filled by %s, as another one is", c, name)
		}
		seen[name] = true
	}
}
