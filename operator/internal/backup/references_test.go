package backup

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
)

// restoreOf is a Restore of a Backup.
func restoreOf(name, backup string, phase v1alpha1.CopyPhase, reason string) *v1alpha1.Restore {
	rst := restore(phase)
	rst.Name, rst.UID, rst.Spec.Backup = name, types.UID(name), backup
	if reason != "" {
		condition.SetAll(&rst.Status.Conditions, 1, metav1.NewTime(clock), condition.False(conditions.Complete, reason, "x"))
	}
	return rst
}

// beginsWith are disks of which the second one begins with a Backup.
func beginsWith(backup string) []v1alpha1.StorageSpec {
	return []v1alpha1.StorageSpec{{Name: "world"}, {Name: "mods", From: &v1alpha1.DiskSource{Backup: backup}}}
}

func TestABackupThatSomebodyNamesStays(t *testing.T) {
	objects := []client.Object{
		restoreOf("waits", "waited-for", v1alpha1.CopyPending, reasons.DisksInUse), restoreOf("unseen", "asked-for", "", ""),
		restoreOf("runs", "being-read", v1alpha1.CopyRunning, ""), restoreOf("over", "put-back", v1alpha1.CopyComplete, ""),
		&v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "s"}, Spec: v1alpha1.ServerSpec{Storage: beginsWith("of-a-server")}},
		&v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "g"}, Spec: v1alpha1.GameTypeSpec{
			Template: v1alpha1.ServerTemplate{Spec: v1alpha1.ServerSpec{Storage: beginsWith("of-a-gametype")}},
		}},
		&v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "others", Name: "s"}, Spec: v1alpha1.ServerSpec{Storage: beginsWith("elsewhere")}},
	}
	objects = append(objects, worldSince(24*time.Hour))
	var backups []*v1alpha1.Backup
	for i, name := range []string{"youngest", "waited-for", "asked-for", "being-read", "put-back", "of-a-server", "of-a-gametype", "elsewhere"} {
		b := made(name, time.Duration(i+1)*time.Hour, v1alpha1.CopyComplete)
		b.UID = types.UID(name)
		backups, objects = append(backups, b), append(objects, b)
	}
	c := clusterWith(t, objects...)
	p := &Planner{Client: c, Live: c}
	if err := p.expire(t.Context(), setWith(func(s *v1alpha1.BackupSpec) { s.Keep.Last = 1 }), backups); err != nil {
		t.Fatal(err)
	}
	var left v1alpha1.BackupList
	if err := c.List(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range left.Items {
		got = append(got, left.Items[i].Name)
	}
	want := []string{"asked-for", "being-read", "of-a-gametype", "of-a-server", "waited-for", "youngest"}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("those that stay are %v, want %v", got, want)
	}
}

// One that waits for its Backup, or for something that is missing, may do so for ever: it keeps no copies from
// being made.
func TestWhichRestoresGoFirst(t *testing.T) {
	server := types.NamespacedName{Namespace: "games", Name: "survival-0"}
	for _, c := range []struct {
		rst  *v1alpha1.Restore
		want bool
	}{
		{restoreOf("a", "b", "", ""), true},
		{restoreOf("a", "b", v1alpha1.CopyPending, reasons.DisksInUse), true},
		{restoreOf("a", "b", v1alpha1.CopyRunning, reasons.Restoring), true},
		{restoreOf("a", "b", v1alpha1.CopyPending, reasons.BackupNotComplete), false},
		{restoreOf("a", "b", v1alpha1.CopyPending, reasons.ServerUnknown), false},
		{restoreOf("a", "b", v1alpha1.CopyPending, reasons.Pending), false},
		{restoreOf("a", "b", v1alpha1.CopyFailed, reasons.RestoreFailed), false},
	} {
		got, err := restoring(t.Context(), clusterWith(t, c.rst), server)
		if err != nil || got != c.want {
			t.Errorf("with a Restore of the phase %q, which says %+v, it goes first: %v (%v)", c.rst.Status.Phase, c.rst.Status.Conditions, got, err)
		}
		e := event.UpdateEvent{ObjectOld: restoreOf("a", "b", v1alpha1.CopyRunning, ""), ObjectNew: c.rst}
		if goesFirstNoMore().Update(e) == c.want {
			t.Errorf("the planner looks again: %v, once a Restore's phase is %q", !c.want, c.rst.Status.Phase)
		}
	}
	other := restore(v1alpha1.CopyRunning)
	other.Spec.Server = "survival-1"
	if got, err := restoring(t.Context(), clusterWith(t, other), server); got || err != nil {
		t.Errorf("a Restore of another Server goes first: %v (%v)", got, err)
	}
	if requests := ofRestore(context.Background(), other); len(requests) != 1 || requests[0].Name != "survival-1" {
		t.Errorf("it is of %v", requests)
	}
}
