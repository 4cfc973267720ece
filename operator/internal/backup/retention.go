package backup

import (
	"cmp"
	"slices"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// keptUnfinished is how many of a Server's Backups stay that failed or were given up.
const keptUnfinished = 5

// expired are the Backups of one Server that don't stay, the oldest first. Those that people made, and
// those that wait or run, neither go nor count. The youngest good one stays, and the youngest of disks at
// rest.
func expired(keep v1alpha1.BackupRetention, backups []*v1alpha1.Backup) []*v1alpha1.Backup {
	var good, bad []*v1alpha1.Backup
	for _, b := range backups {
		switch {
		case b.Labels[wellknown.BackupCauseLabel] == "" || !b.DeletionTimestamp.IsZero():
		case b.Status.Phase == v1alpha1.CopyComplete:
			good = append(good, b)
		case ended(b):
			bad = append(bad, b)
		}
	}
	youngestFirst(good, takenAt)
	youngestFirst(bad, endOf)

	stays := map[*v1alpha1.Backup]bool{}
	for _, b := range good[:min(len(good), max(int(keep.Last), 1))] {
		stays[b] = true
	}
	// Copies beside the game may have half of a change: one that surely hasn't stays, whatever their number.
	if i := slices.IndexFunc(good, func(b *v1alpha1.Backup) bool { return b.Status.AtRest }); i >= 0 {
		stays[good[i]] = true
	}
	lastOfEach(good, int(keep.Daily), day, stays)
	lastOfEach(good, int(keep.Weekly), monday, stays)
	gone := slices.DeleteFunc(good, func(b *v1alpha1.Backup) bool { return stays[b] })
	gone = append(gone, bad[min(len(bad), keptUnfinished):]...)
	youngestFirst(gone, takenAt)
	slices.Reverse(gone)
	return gone
}

// lastOfEach marks the youngest of each of so many periods, of which those without any don't count.
func lastOfEach(youngestFirst []*v1alpha1.Backup, periods int, of func(time.Time) time.Time, stays map[*v1alpha1.Backup]bool) {
	var current time.Time
	for _, b := range youngestFirst {
		period := of(takenAt(b))
		if period.Equal(current) {
			continue
		}
		if periods--; periods < 0 {
			return
		}
		current, stays[b] = period, true
	}
}

// takenAt is the time that a copy is of.
func takenAt(b *v1alpha1.Backup) time.Time {
	if t := b.Status.StartTime; t != nil {
		return t.Time
	}
	return b.CreationTimestamp.Time
}

// day is when the day of a time began, by UTC.
func day(t time.Time) time.Time {
	year, month, d := t.UTC().Date()
	return time.Date(year, month, d, 0, 0, 0, 0, time.UTC)
}

// monday is when the week of a time began, by UTC.
func monday(t time.Time) time.Time {
	d := day(t)
	return d.AddDate(0, 0, -(int(d.Weekday())+6)%7)
}

func youngestFirst(list []*v1alpha1.Backup, at func(*v1alpha1.Backup) time.Time) {
	slices.SortFunc(list, func(a, b *v1alpha1.Backup) int {
		return cmp.Or(at(b).Compare(at(a)), cmp.Compare(b.Name, a.Name))
	})
}
