package backup

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
)

func setWith(change func(*v1alpha1.BackupSpec)) *disks.Set {
	spec := &v1alpha1.BackupSpec{To: v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "nas"}}}
	if change != nil {
		change(spec)
	}
	return &disks.Set{
		Namespace: "games", Name: "survival-0", Backup: spec, Owner: metav1.OwnerReference{Kind: "GameType", Name: "survival"},
		Spec: &v1alpha1.ServerSpec{Storage: []v1alpha1.StorageSpec{{Name: "world"}}},
	}
}

func TestWhatABackupDoesNext(t *testing.T) {
	plain := setWith(nil)
	copies := setWith(func(s *v1alpha1.BackupSpec) { s.WhileRunning = v1alpha1.BackupCopies })
	players := setWith(func(s *v1alpha1.BackupSpec) { s.OnWake = v1alpha1.BackupOnWakeWait })
	itself := setWith(func(s *v1alpha1.BackupSpec) { s.To.Claim.Name = "survival-0-world" })
	unasked := setWith(nil)
	unasked.Backup = nil
	good, bad := copyjob.Outcome{Done: true}, copyjob.Outcome{Done: true, Failed: true, Message: "No."}
	changed := copyjob.Outcome{Done: true, Report: copyjob.Report{Changed: true}}
	taken := func(b *v1alpha1.Backup) {
		condition.SetAll(&b.Status.Conditions, 1, metav1.NewTime(clock), condition.False(conditions.Complete, reasons.SnapshotTaken, "x"))
	}
	deleted := func(b *v1alpha1.Backup) { b.DeletionTimestamp = &metav1.Time{Time: clock} }
	beside := func(b *v1alpha1.Backup) { b.Status.AtRest = false }
	for name, c := range map[string]struct {
		phase  v1alpha1.CopyPhase
		change func(*v1alpha1.Backup)
		o      observed
		do     act
		to     v1alpha1.CopyPhase
		reason string
	}{
		"no such Server":               {"", nil, observed{template: true}, rest, v1alpha1.CopyPending, reasons.NoServer},
		"no spec":                      {"", nil, observed{template: true, set: unasked}, rest, v1alpha1.CopyPending, reasons.NotAsked},
		"onto the disk itself":         {"", nil, observed{template: true, set: itself}, rest, v1alpha1.CopyPending, reasons.TargetIsDisk},
		"no sidecar":                   {"", nil, observed{set: plain}, rest, v1alpha1.CopyPending, reasons.NoSidecar},
		"behind another one":           {"", nil, observed{template: true, set: plain, earlier: "a"}, rest, v1alpha1.CopyPending, reasons.EarlierCopy},
		"behind the game":              {"", nil, observed{template: true, set: plain, yields: 1}, rest, v1alpha1.CopyPending, reasons.GameFirst},
		"the game runs":                {v1alpha1.CopyPending, nil, observed{template: true, set: plain, game: true}, rest, v1alpha1.CopyPending, reasons.DisksInUse},
		"the game runs, and may":       {"", nil, observed{template: true, set: copies, game: true}, startBeside, "", ""},
		"the game may run, and sleeps": {"", nil, observed{template: true, set: copies}, start, "", ""},
		"nothing in the way":           {v1alpha1.CopyPending, nil, observed{template: true, set: plain}, start, "", ""},
		"deleted before it began":      {v1alpha1.CopyPending, deleted, observed{template: true, set: plain}, forget, "", ""},

		"runs":                                {v1alpha1.CopyRunning, nil, observed{set: plain, made: true}, goOn, v1alpha1.CopyRunning, reasons.Copying},
		"runs, and its Server is gone":        {v1alpha1.CopyRunning, nil, observed{made: true}, goOn, v1alpha1.CopyRunning, reasons.Copying},
		"somebody wakes the game":             {v1alpha1.CopyRunning, nil, observed{set: plain, made: true, wanted: true}, giveUp, "", reasons.GameWoken},
		"and the Server is gone":              {v1alpha1.CopyRunning, nil, observed{made: true, wanted: true}, giveUp, "", reasons.GameWoken},
		"somebody wakes it, and waits":        {v1alpha1.CopyRunning, nil, observed{set: players, made: true, wanted: true}, goOn, v1alpha1.CopyRunning, reasons.Copying},
		"somebody wakes it for another one":   {v1alpha1.CopyRunning, beside, observed{set: copies, made: true, wanted: true}, goOn, v1alpha1.CopyRunning, reasons.Copying},
		"its Pods are there yet":              {v1alpha1.CopyRunning, nil, observed{set: plain, stopping: reasons.GameWoken}, giveUp, "", reasons.GameWoken},
		"its Pods are gone":                   {v1alpha1.CopyRunning, nil, observed{set: plain, stopping: reasons.GameWoken, gone: true}, finish, v1alpha1.CopyCanceled, reasons.GameWoken},
		"it succeeds while it is being ended": {v1alpha1.CopyRunning, nil, observed{set: plain, stopping: reasons.GameWoken, outcome: good}, giveUp, "", reasons.GameWoken},
		"deleted while it runs":               {v1alpha1.CopyRunning, deleted, observed{set: plain, made: true}, giveUp, "", reasons.Deleted},
		"deleted, and its Pods are gone":      {v1alpha1.CopyRunning, deleted, observed{set: plain, stopping: reasons.Deleted, gone: true}, finish, v1alpha1.CopyCanceled, reasons.Deleted},
		"it succeeds":                         {v1alpha1.CopyRunning, nil, observed{set: plain, made: true, wanted: true, outcome: good}, finish, v1alpha1.CopyComplete, reasons.Copied},
		"it fails":                            {v1alpha1.CopyRunning, nil, observed{set: plain, made: true, outcome: bad}, finish, v1alpha1.CopyFailed, reasons.CopyFailed},
		"files changed meanwhile":             {v1alpha1.CopyRunning, nil, observed{set: plain, made: true, outcome: changed}, finish, v1alpha1.CopyComplete, reasons.Copied},
		"its snapshots have their moment":     {v1alpha1.CopyRunning, nil, observed{set: plain, made: true, frozen: true, wanted: true}, letGo, v1alpha1.CopyRunning, reasons.SnapshotTaken},
		"and it says so":                      {v1alpha1.CopyRunning, taken, observed{set: plain, made: true, frozen: true, wanted: true}, goOn, v1alpha1.CopyRunning, reasons.SnapshotTaken},

		"complete":             {v1alpha1.CopyComplete, nil, observed{set: plain, wanted: true}, rest, "", ""},
		"failed":               {v1alpha1.CopyFailed, nil, observed{}, rest, "", ""},
		"complete and deleted": {v1alpha1.CopyComplete, deleted, observed{}, forget, "", ""},
	} {
		b := made("b", 0, c.phase)
		if c.change != nil {
			c.change(b)
		}
		s := next(b, c.o)
		if s.do != c.do || s.phase != c.to || s.reason != c.reason || (s.phase != "") != (s.message != "") {
			t.Errorf("%s: %+v, want %d, %s %s", name, s, c.do, c.to, c.reason)
		}
	}
}

func TestTheOldestBackupGoesFirst(t *testing.T) {
	old, young, gone := made("b", 2*time.Hour, ""), made("a", time.Hour, v1alpha1.CopyPending), made("c", 3*time.Hour, v1alpha1.CopyPending)
	gone.DeletionTimestamp = &metav1.Time{Time: clock}
	running, over := made("r", 0, v1alpha1.CopyRunning), made("x", 9*time.Hour, v1alpha1.CopyComplete)
	for _, b := range []*v1alpha1.Backup{old, young, gone, running, over} {
		b.UID = types.UID(b.Name)
	}
	for name, c := range map[string]struct {
		of   *v1alpha1.Backup
		all  []*v1alpha1.Backup
		want string
	}{
		"alone":          {old, []*v1alpha1.Backup{old, over, gone}, ""},
		"the oldest":     {old, []*v1alpha1.Backup{young, old}, ""},
		"a younger one":  {young, []*v1alpha1.Backup{young, old}, "b"},
		"one that runs":  {old, []*v1alpha1.Backup{young, old, running}, "r"},
		"one that ended": {young, []*v1alpha1.Backup{young, over}, ""},
	} {
		if got := earlierThan(c.of, c.all); got != c.want {
			t.Errorf("%s: %q goes first, want %q", name, got, c.want)
		}
	}
}
