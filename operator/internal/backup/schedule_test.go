package backup

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
)

// While a GameType doesn't ask for copies nobody notes that its games run.
func TestWhatWasPlayedBeforeCopiesAreAskedForAgainIsCopied(t *testing.T) {
	const asked, used = true, "2026-11-25T12:00:00Z"
	for name, c := range map[string]struct {
		asked  bool
		copied bool
		made   int
		noted  string
	}{
		"it asks again":            {!asked, true, 1, "2026-11-26T11:59:59Z"},
		"it has asked all along":   {asked, true, 0, used},
		"it asks first":            {!asked, false, 1, used},
		"it has never been copied": {asked, false, 1, used},
	} {
		gt := &v1alpha1.GameType{
			ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival", UID: "survival"},
			Spec: v1alpha1.GameTypeSpec{Replicas: new(int32(2)), Backup: setWith(nil).Backup, Template: v1alpha1.ServerTemplate{
				Spec: v1alpha1.ServerSpec{Storage: []v1alpha1.StorageSpec{{Name: "world"}}},
			}},
		}
		if c.asked {
			condition.SetAll(&gt.Status.Conditions, 1, metav1.NewTime(clock), condition.True(conditions.BackedUp, reasons.BackedUp, "x"))
		}
		objects := []client.Object{gt}
		for _, server := range []string{"survival-0", "survival-1"} {
			objects = append(objects, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: "games", Name: server + "-world", Annotations: map[string]string{wellknown.UsedAtAnnotation: used},
			}})
			if c.copied {
				b := made(server+"-a", time.Hour, v1alpha1.CopyComplete)
				b.UID, b.Spec.Server = types.UID(b.Name), server
				objects = append(objects, b)
			}
		}
		api := clusterWith(t, objects...)
		p := &Planner{Client: api, Live: api, Events: events.NewFakeRecorder(10), Now: func() time.Time { return clock }}
		p.Init()
		pass := func(server string) *v1alpha1.Backup {
			t.Helper()
			if _, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "games", Name: server}}); err != nil {
				t.Fatal(err)
			}
			b := &v1alpha1.Backup{}
			if err := api.Get(t.Context(), types.NamespacedName{Namespace: "games", Name: server + "-" + clock.Format(stamp)}, b); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			return b
		}
		b := pass("survival-0")
		if (b.Name != "") != (c.made > 0) {
			t.Errorf("%s: Backup %q is made", name, b.Name)
		}
		// Of all places: the next pass may find that the GameType says already how its copies went.
		for _, server := range []string{"survival-0", "survival-1"} {
			claim := &corev1.PersistentVolumeClaim{}
			if err := api.Get(t.Context(), types.NamespacedName{Namespace: "games", Name: server + "-world"}, claim); err != nil {
				t.Fatal(err)
			}
			if got := claim.Annotations[wellknown.UsedAtAnnotation]; got != c.noted {
				t.Errorf("%s: the disk of %s was used at %s, want %s", name, server, got, c.noted)
			}
		}
		if b.Name == "" {
			continue
		}
		// The API server here never writes what the GameType says, and the copy is made once all the same.
		b.Status = v1alpha1.BackupStatus{Phase: v1alpha1.CopyComplete, AtRest: true, StartTime: &metav1.Time{Time: clock}, CompletionTime: &metav1.Time{Time: clock}}
		if err := api.Status().Update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		p.Now = func() time.Time { return clock.Add(time.Minute) }
		pass("survival-0")
		var all v1alpha1.BackupList
		if err := api.List(t.Context(), &all, client.MatchingLabels{wellknown.ServerLabel: "survival-0"}); err != nil {
			t.Fatal(err)
		}
		if len(all.Items) != c.made {
			t.Errorf("%s: a minute later there are %d, want %d", name, len(all.Items), c.made)
		}
	}
}
