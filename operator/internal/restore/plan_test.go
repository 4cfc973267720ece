package restore

import (
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
)

var noon = metav1.NewTime(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))

func later10() *metav1.Time { return &metav1.Time{Time: noon.Add(10 * time.Second)} }

// undo is a Restore in a phase.
func undo(phase v1alpha1.CopyPhase, change ...func(*v1alpha1.Restore)) *v1alpha1.Restore {
	r := &v1alpha1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "undo", UID: "undo"},
		Spec:       v1alpha1.RestoreSpec{Server: "survival", Backup: "survival-1"},
		Status:     v1alpha1.RestoreStatus{Phase: phase},
	}
	if phase == v1alpha1.CopyComplete {
		r.Status.CompletionTime, r.Status.PreviousKept = &noon, true
	}
	for _, f := range change {
		f(r)
	}
	return r
}

func deleted(r *v1alpha1.Restore) {
	r.DeletionTimestamp, r.Finalizers = &noon, []string{finalizer}
}
func withGuard(r *v1alpha1.Restore) { r.Finalizers = []string{finalizer} }
func wasReady(r *v1alpha1.Restore)  { r.Status.ServerReadyTime = later10() }
func isGivenUp(r *v1alpha1.Restore) {
	r.Status.Conditions = []metav1.Condition{{Type: conditions.Complete, Reason: reasons.RestoreFailed}}
}

// idle is a Server with one disk, at rest, and a Backup of it.
func idle(change ...func(*observed)) observed {
	o := observed{
		backup: &v1alpha1.Backup{
			Spec:   v1alpha1.BackupRequest{Server: "survival"},
			Status: v1alpha1.BackupStatus{Phase: v1alpha1.CopyComplete, To: &v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "copies"}}, Disks: []string{"world"}},
		},
		set: &disks.Set{Namespace: "games", Name: "survival", Spec: &v1alpha1.ServerSpec{Storage: []v1alpha1.StorageSpec{{Name: "world"}}}},
	}
	for _, f := range change {
		f(&o)
	}
	return o
}

func isHeld(o *observed)       { o.held = true }
func hasJob(o *observed)       { o.job = &batchv1.Job{} }
func killedBefore(o *observed) { o.repeated = true }
func noBackup(o *observed)     { o.backup = nil }
func settling(o *observed)     { o.settles = true }
func prepares(r *v1alpha1.Restore) {
	r.Status.Conditions = []metav1.Condition{{Type: conditions.Complete, Reason: reasons.Preparing}}
}
func jobOwn(o *observed) { o.users.Own = []string{"restore-undo-x"} }
func jobDone(o *observed) {
	o.outcome = copyjob.Outcome{Done: true}
}

func jobFailed(o *observed) {
	o.outcome = copyjob.Outcome{Done: true, Failed: true, Message: "The archive is broken.", Report: copyjob.Report{Error: "the archive is broken"}}
}

func halfMoved(o *observed) { o.outcome.Report.Between = true }

func jobKilled(o *observed) {
	o.outcome = copyjob.Outcome{Done: true, Failed: true, Message: "It took longer than its timeout."}
}

// Another Restore of the same name isn't the one before, and the program takes the names of all.
func TestEachRestoreIsAnother(t *testing.T) {
	first, second := undo(""), undo("")
	first.UID, second.UID = "0a1b2c3d-1111", "4e5f6071-1111"
	if first.Name = "undo"; idOf(first) != "undo-0a1b2c3d" || idOf(first) == idOf(second) {
		t.Errorf("they are %s and %s", idOf(first), idOf(second))
	}
	first.Name = strings.Repeat("a", 100) + "." + strings.Repeat("b", 9)
	if id := idOf(first); len(id) > 110 || strings.Contains(id, ".-") {
		t.Errorf("one with a long name is %s", id)
	}
}

// Another Job follows later each time.
func TestThePausesBetweenJobs(t *testing.T) {
	now := noon.Time
	r := &Reconciler{Now: func() time.Time { return now }}
	r.Init()
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		job := types.UID(strconv.Itoa(i))
		if got := r.pausedAfter("undo", job); got != want {
			t.Errorf("after Job %d it pauses %s, want %s", i, got, want)
		}
		now = now.Add(want - time.Second)
		if got := r.pausedAfter("undo", job); got != time.Second {
			t.Errorf("a second before its end the pause is %s", got)
		}
		now = now.Add(time.Minute)
		if got := r.pausedAfter("undo", job); got != 0 {
			t.Errorf("after its end the pause is %s", got)
		}
	}
}

func TestWhatBecomesOfARestore(t *testing.T) {
	for name, c := range map[string]struct {
		restore *v1alpha1.Restore
		seen    observed
		want    step
		says    string
	}{
		"the Backup isn't there":        {undo(""), idle(func(o *observed) { o.backup = nil }), wait, "There is no Backup survival-1."},
		"the Backup isn't complete yet": {undo(""), idle(func(o *observed) { o.backup.Status.Phase = v1alpha1.CopyRunning }), wait, "Complete"},
		"the Backup failed":             {undo(""), idle(func(o *observed) { o.backup.Status.Phase = v1alpha1.CopyFailed }), fail, "restore another one"},
		"nobody knows the Server":       {undo(""), idle(func(o *observed) { o.set = nil }), wait, "no GameType that has a place of that name"},
		"the Server has none of its disks": {
			undo(""), idle(func(o *observed) { o.set.Spec = &v1alpha1.ServerSpec{} }), fail,
			"has none of them",
		},
		"the game runs":                   {undo(""), idle(func(o *observed) { o.game = true }), wait, "stop Server survival, or let it sleep"},
		"nothing is in the way":           {undo(""), idle(), hold, ""},
		"a file pod has the disks":        {undo(""), idle(isHeld, func(o *observed) { o.users.Others = []string{"survival-files-x"} }), wait, "survival-files-x"},
		"a Backup of an earlier leader's": {undo(""), idle(isHeld, func(o *observed) { o.others = []string{"Backup survival-2"} }), wait, "Backup survival-2"},
		"the disks are at rest":           {undo(""), idle(isHeld), begin, ""},
		"deleted before it began":         {undo("", func(r *v1alpha1.Restore) { r.DeletionTimestamp = &noon }), idle(), rest, ""},

		"it runs, for a new leader":                  {undo(v1alpha1.CopyRunning), idle(), hold, ""},
		"it runs, and has no Job yet":                {undo(v1alpha1.CopyRunning), idle(isHeld), run, ""},
		"it runs, and somebody has a disk":           {undo(v1alpha1.CopyRunning), idle(isHeld, func(o *observed) { o.users.Others = []string{"survival"} }), watch, "Pod survival"},
		"its Job was deleted, its Pod runs":          {undo(v1alpha1.CopyRunning), idle(isHeld, jobOwn), rest, ""},
		"its Job runs":                               {undo(v1alpha1.CopyRunning), idle(isHeld, hasJob, jobOwn), watch, ""},
		"its Job succeeded":                          {undo(v1alpha1.CopyRunning), idle(isHeld, hasJob, jobDone), complete, "what Backup survival-1 has"},
		"its Job failed":                             {undo(v1alpha1.CopyRunning), idle(isHeld, hasJob, jobFailed), fail, "broken"},
		"its Job failed, and its Pod ends":           {undo(v1alpha1.CopyRunning), idle(isHeld, hasJob, jobFailed, jobOwn), rest, ""},
		"its Job was killed":                         {undo(v1alpha1.CopyRunning), idle(isHeld, hasJob, jobKilled), again, ""},
		"its Job was killed twice":                   {undo(v1alpha1.CopyRunning), idle(isHeld, hasJob, jobKilled, killedBefore), giveUp, "made whole first"},
		"killed twice, and that is written":          {undo(v1alpha1.CopyRunning, isGivenUp), idle(isHeld, hasJob, jobKilled, killedBefore), stop, ""},
		"killed twice, and that Job is gone":         {undo(v1alpha1.CopyRunning, isGivenUp), idle(isHeld), settle, ""},
		"its Job was killed twice, and its Pod ends": {undo(v1alpha1.CopyRunning), idle(isHeld, hasJob, jobKilled, killedBefore, jobOwn), rest, ""},
		"killed twice, and it is made whole":         {undo(v1alpha1.CopyRunning), idle(isHeld, hasJob, killedBefore, settling), watch, "made whole"},
		"killed twice, and all whole":                {undo(v1alpha1.CopyRunning), idle(isHeld, hasJob, killedBefore, settling, jobDone), fail, "killed twice"},
		"its Job left the disks half moved": {
			undo(v1alpha1.CopyRunning), idle(isHeld, hasJob, jobFailed, halfMoved, func(o *observed) { o.paused = time.Minute }), pause,
			"The archive is broken. The disks may be half moved, and another try goes on from there soon.",
		},
		"another Job goes on there":                      {undo(v1alpha1.CopyRunning), idle(isHeld, hasJob, jobFailed, halfMoved), again, ""},
		"and again, after one was killed":                {undo(v1alpha1.CopyRunning), idle(isHeld, hasJob, jobFailed, halfMoved, func(o *observed) { o.repeated = true }), again, ""},
		"the Backup is gone before anything was written": {undo(v1alpha1.CopyRunning, prepares), idle(isHeld, noBackup), fail, "gone"},
		"the Backup is gone while it runs":               {undo(v1alpha1.CopyRunning), idle(isHeld, noBackup), settle, ""},
		"the Backup is gone, and a Pod ends":             {undo(v1alpha1.CopyRunning), idle(isHeld, noBackup, jobOwn), rest, ""},
		"the Backup is gone, the Job goes on":            {undo(v1alpha1.CopyRunning), idle(isHeld, noBackup, hasJob), watch, ""},
		"the Backup is gone, it is made whole":           {undo(v1alpha1.CopyRunning), idle(isHeld, noBackup, hasJob, settling), watch, "made whole"},
		"the Backup is gone, and half moved":             {undo(v1alpha1.CopyRunning), idle(isHeld, noBackup, hasJob, settling, jobFailed, halfMoved), again, ""},
		"the Backup is gone, and all whole":              {undo(v1alpha1.CopyRunning), idle(isHeld, noBackup, hasJob, settling, jobDone), fail, "gone. No disk is half moved"},
		"the Backup came back meanwhile":                 {undo(v1alpha1.CopyRunning), idle(isHeld, hasJob, settling, jobDone), fail, "half moved"},
		"the Server and its disks are gone":              {undo(v1alpha1.CopyRunning), idle(isHeld, func(o *observed) { o.set = nil }), fail, "gone"},

		"deleted while its Job runs":               {undo(v1alpha1.CopyRunning, deleted), idle(isHeld, hasJob, jobOwn), stop, ""},
		"deleted, and its Pod ends":                {undo(v1alpha1.CopyRunning, deleted), idle(isHeld, jobOwn), rest, ""},
		"deleted before its Job was made":          {undo(v1alpha1.CopyRunning, deleted, prepares), idle(isHeld), leave, ""},
		"deleted, and nothing runs":                {undo(v1alpha1.CopyRunning, deleted), idle(isHeld), settle, ""},
		"deleted, and no disk is left":             {undo(v1alpha1.CopyRunning, deleted), idle(isHeld, func(o *observed) { o.set = nil }), leave, ""},
		"deleted, and a file pod has a disk":       {undo(v1alpha1.CopyRunning, deleted), idle(isHeld, func(o *observed) { o.users.Others = []string{"x"} }), watch, "Pod x"},
		"deleted once its Job was done":            {undo(v1alpha1.CopyRunning, deleted), idle(isHeld, hasJob, jobDone), leave, ""},
		"deleted once its Job had changed nothing": {undo(v1alpha1.CopyRunning, deleted), idle(isHeld, hasJob, jobFailed), leave, ""},
		"deleted, the disks half moved":            {undo(v1alpha1.CopyRunning, deleted), idle(isHeld, hasJob, jobFailed, halfMoved), stop, ""},
		"deleted once its Job was killed":          {undo(v1alpha1.CopyRunning, deleted), idle(isHeld, hasJob, jobKilled), stop, ""},
		"given up, and being made whole":           {undo(v1alpha1.CopyRunning, deleted), idle(isHeld, hasJob, settling, jobOwn), watch, "made whole"},
		"given up, and whole":                      {undo(v1alpha1.CopyRunning, deleted), idle(isHeld, hasJob, settling, jobDone), leave, ""},
		"given up, and half moved still":           {undo(v1alpha1.CopyRunning, deleted), idle(isHeld, hasJob, settling, jobFailed, halfMoved), again, ""},
		"given up, and that was killed":            {undo(v1alpha1.CopyRunning, deleted), idle(isHeld, hasJob, settling, jobKilled), again, ""},
		"given up, and killed a moment ago":        {undo(v1alpha1.CopyRunning, deleted), idle(isHeld, hasJob, settling, jobKilled, func(o *observed) { o.paused = 1 }), pause, "half moved"},

		"over, and guarded": {undo(v1alpha1.CopyFailed, withGuard), idle(isHeld), leave, ""},
		"over":              {undo(v1alpha1.CopyFailed), idle(), rest, ""},
		"done, and guarded": {undo(v1alpha1.CopyComplete, withGuard), idle(isHeld), leave, ""},

		"done, the game was never Ready":      {undo(v1alpha1.CopyComplete), idle(), rest, ""},
		"done, the game was Ready before":     {undo(v1alpha1.CopyComplete), idle(func(o *observed) { o.readySince = &metav1.Time{Time: noon.Add(-time.Minute)} }), rest, ""},
		"done, the game is Ready":             {undo(v1alpha1.CopyComplete), idle(func(o *observed) { o.readySince = later10() }), noteReady, ""},
		"done, the game plays on":             {undo(v1alpha1.CopyComplete, wasReady), idle(func(o *observed) { o.game = true }), rest, ""},
		"done, the game is to start":          {undo(v1alpha1.CopyComplete, wasReady), idle(func(o *observed) { o.runs = true }), rest, ""},
		"done, and at rest again":             {undo(v1alpha1.CopyComplete, wasReady), idle(), hold, ""},
		"done, and a file pod has the disks":  {undo(v1alpha1.CopyComplete, wasReady), idle(isHeld, func(o *observed) { o.users.Others = []string{"x"} }), wait, ""},
		"done, and nothing has the disks":     {undo(v1alpha1.CopyComplete, wasReady), idle(isHeld), drop, ""},
		"what was there goes":                 {undo(v1alpha1.CopyComplete, wasReady), idle(isHeld, hasJob), rest, ""},
		"what was there goes, for a new one":  {undo(v1alpha1.CopyComplete, wasReady), idle(hasJob), hold, ""},
		"what was there goes, a player comes": {undo(v1alpha1.CopyComplete, wasReady), idle(isHeld, hasJob, func(o *observed) { o.wanted = true }), giveWay, ""},
		"a player came, the Pod ends":         {undo(v1alpha1.CopyComplete, wasReady), idle(isHeld, jobOwn, func(o *observed) { o.wanted = true }), rest, ""},
		"a player came, the Pod has ended":    {undo(v1alpha1.CopyComplete, wasReady), idle(isHeld, func(o *observed) { o.wanted = true }), wait, ""},
		"what was there is gone":              {undo(v1alpha1.CopyComplete, wasReady), idle(isHeld, hasJob, jobDone), dropped, ""},
		"what was there can't go":             {undo(v1alpha1.CopyComplete, wasReady), idle(isHeld, hasJob, jobFailed), dropFailed, "broken"},
		"what was there couldn't go just now": {undo(v1alpha1.CopyComplete, wasReady), idle(func(o *observed) { o.triedAgo = time.Minute }), rest, ""},
		"what was there is tried again":       {undo(v1alpha1.CopyComplete, wasReady), idle(func(o *observed) { o.triedAgo = dropRetry }), hold, ""},
		"all is over":                         {undo(v1alpha1.CopyComplete, func(r *v1alpha1.Restore) { r.Status.PreviousKept = false }), idle(), rest, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := next(c.restore, c.seen)
			if got.step != c.want || !strings.Contains(got.message, c.says) {
				t.Errorf("it does %s and says %q, want %s with %q", got.step, got.message, c.want, c.says)
			}
		})
	}
}
