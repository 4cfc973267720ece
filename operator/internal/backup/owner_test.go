package backup

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
)

func TestWhatAnOwnerSaysOfItsCopies(t *testing.T) {
	const hour = time.Hour
	says := func(b *v1alpha1.Backup, reason, message string) *v1alpha1.Backup {
		condition.SetAll(&b.Status.Conditions, 1, metav1.NewTime(clock), condition.False(conditions.Complete, reason, "%s", message))
		return b
	}
	complete := func(ago time.Duration) *v1alpha1.Backup { return made("a", ago, v1alpha1.CopyComplete) }
	failed := says(made("f", hour, v1alpha1.CopyFailed), reasons.CopyFailed, "Disk full.")
	type list = []*v1alpha1.Backup
	for name, c := range map[string]struct {
		problem error
		backups map[string]list
		want    string
	}{
		"none":                            {want: "Unknown NoBackup Nothing has been copied yet."},
		"one that runs":                   {backups: map[string]list{"x-0": {made("a", 0, v1alpha1.CopyRunning)}}, want: "Unknown NoBackup Nothing has been copied yet."},
		"both":                            {backups: map[string]list{"x-0": {complete(hour)}, "x-1": {complete(2 * hour), complete(9 * hour)}}, want: "True BackedUp The last copy is from 2026-11-26T10:00:00Z."},
		"one of them":                     {backups: map[string]list{"x-0": {complete(hour)}}, want: "True BackedUp 1 of 2 Servers have a copy, the oldest of the last ones from 2026-11-26T11:00:00Z."},
		"the last one failed":             {backups: map[string]list{"x-0": {complete(hour)}, "x-1": {complete(2 * hour), failed}}, want: "False CopyFailed Backup f of Server x-1 failed: disk full."},
		"one failed before":               {backups: map[string]list{"x-0": {failed, complete(hour / 2)}}, want: "True BackedUp 1 of 2 Servers have a copy, the oldest of the last ones from 2026-11-26T11:30:00Z."},
		"one was given up since":          {backups: map[string]list{"x-0": {made("c", 0, v1alpha1.CopyCanceled), complete(hour)}}, want: "True BackedUp 1 of 2 Servers have a copy, the oldest of the last ones from 2026-11-26T11:00:00Z."},
		"one that waits for the game":     {backups: map[string]list{"x-0": {says(made("p", 0, v1alpha1.CopyPending), reasons.DisksInUse, "It waits."), complete(hour)}}, want: "True BackedUp 1 of 2 Servers have a copy, the oldest of the last ones from 2026-11-26T11:00:00Z."},
		"one that waits for somebody":     {backups: map[string]list{"x-0": {says(made("p", 0, v1alpha1.CopyPending), reasons.NoSnapshots, "Install it."), complete(hour)}}, want: "False NoSnapshots Backup p of Server x-0 waits: Install it."},
		"a schedule that nobody can read": {problem: errors.New("cron"), backups: map[string]list{"x-0": {complete(hour)}}, want: "False ScheduleInvalid No copies are made: cron."},
	} {
		got := backedUp(c.problem, []string{"x-0", "x-1"}, func(server string) []*v1alpha1.Backup { return c.backups[server] })
		if words := string(got.Status) + " " + got.Reason + " " + got.Message; words != c.want {
			t.Errorf("%s: %s\nwant %s", name, words, c.want)
		}
	}
}
