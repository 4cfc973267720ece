package gameserver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/disks/disklock"
	"dormouse.dev/dormouse/operator/internal/gameserver/planner"
)

// former are Copies that an earlier leader began.
type former []string

func (f former) Of(context.Context, types.NamespacedName) ([]string, error) { return f, nil }

// table is a table whose callbacks note the Servers.
func table() (t *disklock.Table, freed *[]string) {
	freed = &[]string{}
	return disklock.New(func(key types.NamespacedName) { *freed = append(*freed, key.Name) }, func(types.NamespacedName) {}), freed
}

func TestAGameWaitsForWhoHasItsDisks(t *testing.T) {
	s := full()
	key := client.ObjectKeyFromObject(s)
	disks, freed := table()
	r := &Reconciler{Disks: disks, Copies: former(nil)}
	if !disks.Hold(key, "Backup lobby-1") {
		t.Fatal("the disks can't be held")
	}
	_, busy, err := r.takeDisks(t.Context(), s)
	if err != nil || busy == nil || retryAfter(busy) != refusedRetry {
		t.Fatalf("held disks can be taken: %v, %v", busy, err)
	}
	reason, message := whyRefused(s, busy)
	planner.SetRefused(time.Unix(1, 0), s, reason, message)
	if got := readyOf(s); got.reason != reasons.DisksBusy || got.message != "Waits for Backup lobby-1, which copies its disks." || s.Status.State != v1alpha1.ServerPending {
		t.Errorf("the Server is %s and says %+v", s.Status.State, got)
	}
	if emitted := notices(full(), s, planner.Plan{}); len(emitted) != 1 || emitted[0].Reason != reasons.DisksBusy {
		t.Errorf("its events are %+v", emitted)
	}
	if emitted := notices(s, s, planner.Plan{}); len(emitted) != 0 {
		t.Errorf("while it waits there are more: %+v", emitted)
	}
	disks.Release(key, "Backup lobby-1")
	if len(*freed) != 1 {
		t.Error("nobody brings the Server again")
	}

	end, busy, err := r.takeDisks(t.Context(), s)
	if err != nil || busy != nil {
		t.Fatalf("free disks can't be taken: %v, %v", busy, err)
	}
	if disks.Hold(key, "Backup lobby-2") {
		t.Error("they can be held while the game starts")
	}
	end()
	if !disks.Hold(key, "Backup lobby-2") {
		t.Error("they can't be held after that")
	}
}

// What an earlier leader began isn't in the table, and holds the disks all the same. The table is
// left as it was.
func TestAGameWaitsForWhatAnEarlierLeaderBegan(t *testing.T) {
	s := full()
	disks, _ := table()
	_, busy, err := (&Reconciler{Disks: disks, Copies: former{"Restore undo"}}).takeDisks(t.Context(), s)
	if err != nil || busy == nil || !strings.Contains(busy.Error(), "Restore undo") || retryAfter(busy) != formerRetry {
		t.Errorf("it doesn't wait: %v, %v", busy, err)
	}
	if !disks.Hold(client.ObjectKeyFromObject(s), "Restore undo") {
		t.Error("the Restore can't take the disks up")
	}
}

// stored is a client with some claims, and counts what is written.
func stored(t *testing.T, claims ...client.Object) (c client.Client, patches *int) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	patches = new(int)
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(claims...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			*patches++
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build(), patches
}

func alone() *v1alpha1.Server {
	s := full()
	s.Labels = nil
	return s
}

func claimOf(t *testing.T, c client.Client, s *v1alpha1.Server) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: claimName(s, s.Spec.Storage[0])}, claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

// The game doesn't start on a disk that doesn't have yet what it begins with.
func TestAGameWaitsForWhatItsDiskBeginsWith(t *testing.T) {
	s := alone()
	s.Spec.Storage[0].From = &v1alpha1.DiskSource{Backup: "lobby-1"}
	c, _ := stored(t)
	r := &Reconciler{Client: c, Live: c}
	unfilled, err := r.keepClaims(t.Context(), s)
	if err != nil || unfilled == nil {
		t.Fatalf("a new disk has all: %v, %v", unfilled, err)
	}
	refused, err := r.waitForFill(s, unfilled, nil)
	if want := "Waits until disk world is filled from Backup lobby-1."; err != nil || refused.Error() != want {
		t.Errorf("it says %v, %v; want %s", refused, err, want)
	}
	if unfilled, err = r.keepClaims(t.Context(), s); err != nil || unfilled == nil {
		t.Errorf("an existing disk has all: %v, %v", unfilled, err)
	}
	empty := s.DeepCopy()
	empty.Spec.Storage[0].From = nil
	if unfilled, err = r.keepClaims(t.Context(), empty); err != nil || unfilled != nil {
		t.Errorf("a disk that is to be empty is waited for: %v, %v", unfilled, err)
	}
	if err := disks.Annotate(t.Context(), c, claimOf(t, c, s), wellknown.FilledAnnotation, "backup/lobby-1"); err != nil {
		t.Fatal(err)
	}
	if unfilled, err = r.keepClaims(t.Context(), s); err != nil || unfilled != nil {
		t.Errorf("a filled disk is waited for: %v, %v", unfilled, err)
	}
}

// A disk that is about to be gone still has a Pod on it, such as an SFTP session's. The Server says so, and looks again.
func TestAGameWaitsUntilAnEarlierDiskIsGone(t *testing.T) {
	s := alone()
	c, _ := stored(t)
	r := &Reconciler{Client: c, Live: c}
	if _, err := r.keepClaims(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	claim := claimOf(t, c, s)
	claim.Finalizers = []string{"kubernetes.io/pvc-protection"}
	if err := errors.Join(c.Update(t.Context(), claim), c.Delete(t.Context(), claim)); err != nil {
		t.Fatal(err)
	}
	unfilled, err := r.keepClaims(t.Context(), s)
	refused, err := r.waitForFill(s, unfilled, err)
	if err != nil || refused == nil {
		t.Fatalf("it says %v, %v", refused, err)
	}
	reason, message := whyRefused(s, refused)
	if want := "Waits until disk world of an earlier Server of the name is gone."; reason != reasons.DisksBusy || message != want || retryAfter(refused) != formerRetry {
		t.Errorf("it says %s, %q, and looks again after %s", reason, message, retryAfter(refused))
	}
	claim = claimOf(t, c, s)
	claim.Finalizers = nil
	if err := c.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if _, err := r.keepClaims(t.Context(), s); err != nil {
		t.Errorf("once it is gone: %v", err)
	}
}

// What a game has played on since spec.storage[].from was removed isn't moved aside when it comes back.
// Only such a disk is written for that, once, and none while no game comes on it.
func TestADiskThatBeganEmptyIsNotFilledLater(t *testing.T) {
	s := alone()
	s.Spec.Storage[0].From = &v1alpha1.DiskSource{Backup: "lobby-1"}
	logs := s.Spec.Storage[0]
	logs.Name = "logs"
	s.Spec.Storage = append(s.Spec.Storage, logs)
	c, writes := stored(t)
	r := &Reconciler{Client: c, Live: c}
	keep := func(change func(disks []v1alpha1.StorageSpec)) *v1alpha1.StorageSpec {
		t.Helper()
		now := s.DeepCopy()
		change(now.Spec.Storage)
		unfilled, err := r.keepClaims(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		return unfilled
	}
	keep(func([]v1alpha1.StorageSpec) {})
	*writes = 0
	keep(func(all []v1alpha1.StorageSpec) { all[0].From = nil })
	if *writes != 0 {
		t.Error("a disk is written though no game comes on it yet")
	}
	for range 2 {
		keep(func(all []v1alpha1.StorageSpec) { all[0].From, all[1].From = nil, nil })
	}
	if got := claimOf(t, c, s).Annotations[wellknown.FilledAnnotation]; got != disks.Nothing || *writes != 2 {
		t.Errorf("it says %q after %d writes", got, *writes)
	}
	if unfilled := keep(func([]v1alpha1.StorageSpec) {}); unfilled != nil {
		t.Errorf("disk %s is to be filled though a game has played on it", unfilled.Name)
	}
}

// A disk of an earlier version gets its name with one write, and a user's own none.
func TestAnEarlierVersionsDiskGetsItsName(t *testing.T) {
	for name, c := range map[string]struct {
		labels map[string]string
		want   string
		writes int
	}{
		"an earlier version's": {map[string]string{wellknown.ServerLabel: "lobby"}, "world", 1},
		"one that has it":      {map[string]string{wellknown.ServerLabel: "lobby", wellknown.DiskLabel: "world"}, "world", 0},
		"a user's own":         {nil, "", 0},
	} {
		s := alone()
		claim := buildClaim(s, s.Spec.Storage[0], nil)
		claim.Labels = c.labels
		store, writes := stored(t, claim)
		r := &Reconciler{Client: store, Live: store}
		for range 2 {
			if _, err := r.keepClaims(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		if got := claimOf(t, store, s).Labels[wellknown.DiskLabel]; got != c.want || *writes != c.writes {
			t.Errorf("%s is called %q after %d writes, want %q after %d", name, got, *writes, c.want, c.writes)
		}
	}
}

// Once for each Pod of a Server with backups the disks say since when they are used, and never an
// earlier time.
func TestDisksSayWhenTheyWereUsed(t *testing.T) {
	s := alone()
	made := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "first", CreationTimestamp: metav1.NewTime(made)}}
	c, writes := stored(t, buildClaim(s, s.Spec.Storage[0], nil))
	note := func(r *Reconciler, pod *corev1.Pod, want string, wantWrites int) {
		t.Helper()
		for range 2 {
			if err := r.noteUse(t.Context(), s, pod); err != nil {
				t.Fatal(err)
			}
		}
		if got := claimOf(t, c, s).Annotations[wellknown.UsedAtAnnotation]; got != want || *writes != wantWrites {
			t.Errorf("they were used at %q, after %d writes; want %q after %d", got, *writes, want, wantWrites)
		}
	}
	r := &Reconciler{Client: c, Live: c}
	note(r, pod, "", 0)
	s.Spec.Backup = &v1alpha1.BackupSpec{}
	note(r, nil, "", 0)
	note(r, pod, "2026-11-01T12:00:00Z", 1)
	note(&Reconciler{Client: c, Live: c}, pod, "2026-11-01T12:00:00Z", 1) // the next leader
	if err := disks.MarkUsed(t.Context(), c, c, s.Namespace, s.Name, s.Spec.Storage, made.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	note(&Reconciler{Client: c, Live: c}, pod, "2026-11-01T13:00:00Z", 2) // somebody else's Pod was later
	later := pod.DeepCopy()
	later.UID, later.CreationTimestamp = "second", metav1.NewTime(made.Add(2*time.Hour))
	note(r, later, "2026-11-01T14:00:00Z", 3)
}

// The disk world-nether of the Server mc and the disk nether of the Server mc-world have one name. The second
// game would write to the first one's world.
func TestNoGameGetsAnotherServersDisk(t *testing.T) {
	t.Parallel()
	first, second := alone(), alone()
	first.Name, first.Spec.Storage[0].Name = "mc", "world-nether"
	second.Name, second.Spec.Storage[0].Name, second.Spec.Storage[0].Size = "mc-world", "nether", resource.MustParse("1Ti")
	c, patches := stored(t)
	r := &Reconciler{Client: c, Live: c}
	if _, err := r.keepClaims(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	unfilled, err := r.keepClaims(t.Context(), second)
	refused, err := r.waitForFill(second, unfilled, err)
	if err != nil || refused == nil {
		t.Fatalf("it says %v, %v", refused, err)
	}
	reason, message := whyRefused(second, refused)
	if reason != reasons.DisksBusy || !strings.HasPrefix(message, "PersistentVolumeClaim mc-world-nether is a disk of Server mc: ") {
		t.Errorf("it says %s, %q", reason, message)
	}
	if *patches != 0 {
		t.Errorf("the other Server's disk was written %d times", *patches)
	}
	// A user's own is used, whatever it is called.
	claim := claimOf(t, c, first)
	delete(claim.Labels, "app.kubernetes.io/managed-by")
	if err := c.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if _, err := r.keepClaims(t.Context(), second); err != nil {
		t.Errorf("a user's own disk isn't used: %v", err)
	}
}

// The disk of a place doesn't go with an earlier GameType of the name, which Kubernetes hasn't looked at yet.
func TestADiskIsTakenFromAnEarlierOwnerOfTheName(t *testing.T) {
	t.Parallel()
	s := full()
	c, _ := stored(t)
	r := &Reconciler{Client: c, Live: c}
	world := &world{owner: metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType", Name: "lobby", UID: "later"}}
	claim := buildClaim(s, s.Spec.Storage[0], nil)
	metav1.SetMetaDataLabel(&claim.ObjectMeta, wellknown.PlaceLabel, "0")
	stranger := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "of-a-user", UID: "user"}
	earlier := world.owner
	earlier.UID = "earlier"
	claim.OwnerReferences = []metav1.OwnerReference{stranger, earlier}
	if err := c.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		onDelete v1alpha1.StorageOnDelete
		want     []types.UID
	}{
		{v1alpha1.StorageRetain, []types.UID{"user"}},
		{v1alpha1.StorageDelete, []types.UID{"user", "later"}},
	} {
		disk := s.Spec.Storage[0]
		disk.OnDelete = step.onDelete
		if err := r.changeClaim(t.Context(), s, disk, world, claimOf(t, c, s)); err != nil {
			t.Fatal(err)
		}
		var got []types.UID
		for _, o := range claimOf(t, c, s).OwnerReferences {
			got = append(got, o.UID)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("with %s it goes with %v, want %v", step.onDelete, got, step.want)
		}
	}
}
