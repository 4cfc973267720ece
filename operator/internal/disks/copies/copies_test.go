package copies

import (
	"context"
	"errors"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

var survival = types.NamespacedName{Namespace: "games", Name: "survival"}

// store is a cache, or an API server, that counts what is read; err is what its lists fail with.
type store struct {
	client.Client
	lists, gets int
	err         error
}

func storeOf(t *testing.T, objects ...client.Object) *store {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &store{}
	server := func(o client.Object) []string { return []string{ServerOf(o).Name} }
	s.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Restore{}).
		WithIndex(&v1alpha1.Backup{}, IndexServer, server).WithIndex(&v1alpha1.Restore{}, IndexServer, server).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				s.lists++
				if s.err != nil {
					return s.err
				}
				return c.List(ctx, list, opts...)
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				s.gets++
				return c.Get(ctx, key, o, opts...)
			},
		}).Build()
	return s
}

func backup(name, server string, phase v1alpha1.CopyPhase, atRest bool) *v1alpha1.Backup {
	return &v1alpha1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name, UID: types.UID(name)}, Spec: v1alpha1.BackupRequest{Server: server},
		Status: v1alpha1.BackupStatus{Phase: phase, AtRest: atRest},
	}
}

func restore(phase v1alpha1.CopyPhase) *v1alpha1.Restore {
	return &v1alpha1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "undo", UID: "undo"}, Spec: v1alpha1.RestoreSpec{Server: "survival"},
		Status: v1alpha1.RestoreStatus{Phase: phase},
	}
}

func filling(done bool) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: "fill", UID: "fill", Labels: map[string]string{wellknown.CopiesLabel: "survival", wellknown.DisksLabel: "copy"},
	}}
	if done {
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	}
	return job
}

func wantHolders(t *testing.T, f *Finder, want ...string) {
	t.Helper()
	got, err := f.Of(t.Context(), survival)
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		t.Errorf("its disks are copied by %q (%v), want %q", got, err, want)
	}
}

func TestWhoCopiesByTheCache(t *testing.T) {
	cached := storeOf(t, restore(v1alpha1.CopyRunning),
		backup("runs", "survival", v1alpha1.CopyRunning, true), backup("beside-the-game", "survival", v1alpha1.CopyRunning, false),
		backup("waits", "survival", v1alpha1.CopyPending, false), backup("done", "survival", v1alpha1.CopyComplete, true),
		backup("another", "creative", v1alpha1.CopyRunning, true))
	wantHolders(t, &Finder{Client: cached, Live: storeOf(t)}, "Backup runs", "Restore undo")
}

// What an earlier leader began holds the disks though the cache doesn't have it yet, and until it is
// over. A namespace is listed once.
func TestWhoCopiesThoughTheCacheIsBehind(t *testing.T) {
	live := storeOf(t, restore(v1alpha1.CopyRunning), filling(false), backup("runs", "survival", v1alpha1.CopyRunning, true))
	f := &Finder{Client: storeOf(t), Live: live}
	live.err = errors.New("try again")
	if _, err := f.Of(t.Context(), survival); err == nil {
		t.Error("it answers though it couldn't look")
	}
	live.err, live.lists = nil, 0
	wantHolders(t, f, "Backup runs", "Copy for copy", "Restore undo")
	over := restore(v1alpha1.CopyRunning)
	if err := live.Get(t.Context(), client.ObjectKeyFromObject(over), over); err != nil {
		t.Fatal(err)
	}
	over.Status.Phase = v1alpha1.CopyComplete
	if err := live.Status().Update(t.Context(), over); err != nil {
		t.Fatal(err)
	}
	wantHolders(t, f, "Backup runs", "Copy for copy")
	for _, gone := range []client.Object{filling(false), backup("runs", "survival", v1alpha1.CopyRunning, true)} {
		if err := live.Delete(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
	}
	wantHolders(t, f)
	live.gets = 0
	wantHolders(t, f)
	if live.lists != 3 || live.gets != 0 {
		t.Errorf("it listed %d times, and read what is over %d times", live.lists, live.gets)
	}
}

// A Job that fills a disk keeps the game of that disk out, too, wherever it fills it from: a new leader
// hasn't taken the disk yet.
func TestWhoFillsADisk(t *testing.T) {
	fromServer, fromBackup := filling(false), filling(false)
	fromServer.Labels = map[string]string{wellknown.CopiesLabel: "creative", wellknown.DisksLabel: "survival"}
	fromBackup.Name, fromBackup.UID, fromBackup.Labels = "fill-2", "fill-2", map[string]string{wellknown.DisksLabel: "survival"}
	wantHolders(t, &Finder{Client: storeOf(t), Live: storeOf(t, fromServer, fromBackup)}, "Copy from Server creative", "Copy from a Backup")
	wantHolders(t, &Finder{Client: storeOf(t), Live: storeOf(t, filling(true))})
}

func TestAGameIsTriedAgainWhenACopyEnds(t *testing.T) {
	p := Ended()
	update := func(from, to client.Object) bool { return p.Update(event.UpdateEvent{ObjectOld: from, ObjectNew: to}) }
	if !update(restore(v1alpha1.CopyRunning), restore(v1alpha1.CopyFailed)) || !p.Delete(event.DeleteEvent{Object: restore(v1alpha1.CopyRunning)}) {
		t.Error("a copy that ended isn't noticed")
	}
	if update(restore(v1alpha1.CopyPending), restore(v1alpha1.CopyRunning)) || update(restore(v1alpha1.CopyComplete), restore(v1alpha1.CopyComplete)) ||
		p.Create(event.CreateEvent{Object: restore(v1alpha1.CopyRunning)}) || p.Delete(event.DeleteEvent{Object: restore(v1alpha1.CopyComplete)}) {
		t.Error("a game is tried again though nothing let its disks go")
	}
	if running(filling(true)) || !running(filling(false)) {
		t.Error("a Job counts as running when it doesn't")
	}
}
