package backup_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// An earlier leader's Restore is in no table, and has no Pod while its Job is between two tries.
func TestCopiesWaitForARestoreOfAnEarlierLeader(t *testing.T) {
	w := newWorld(t)
	w.setup(nil)
	rst := &v1alpha1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "undo"}, Spec: v1alpha1.RestoreSpec{Server: server, Backup: "old"}}
	w.create(rst)
	says := func(phase v1alpha1.CopyPhase) {
		rst.Status.Phase = phase
		if err := w.Admin.Status().Update(t.Context(), rst); err != nil {
			t.Fatal(err)
		}
	}
	says(v1alpha1.CopyRunning)
	w.replaceLeader()
	w.after(time.Hour)
	if all := w.backups(); len(all) != 0 {
		t.Errorf("while disks that are to be copied are restored there are %+v", all)
	}
	w.byHand("b")
	w.pass()
	w.want("b", v1alpha1.CopyPending, reasons.DisksInUse)
	if left := w.jobs(); len(left) != 0 || !w.couldStart() {
		t.Errorf("it has the disks, with the Jobs %+v", left)
	}
	says(v1alpha1.CopyComplete)
	w.pass()
	w.want("b", v1alpha1.CopyRunning, reasons.Copying)
	w.ends(w.job(), good, true)
	w.pass()
	w.want("b", v1alpha1.CopyComplete, reasons.Copied)
}
