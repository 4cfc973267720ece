package backup

import (
	"fmt"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/requeue"
	"dormouse.dev/dormouse/operator/internal/schedule"
	"dormouse.dev/dormouse/operator/internal/times"
)

// Values of wellknown.BackupCauseLabel.
const (
	causeSleep    = "sleep"
	causeSchedule = "schedule"
)

const (
	// missedFor is how long a time of the schedule that passed is made up for.
	missedFor = 366 * 24 * time.Hour
	// stamp is the time in a Backup's name.
	stamp = "20060102150405"
	// tornTries is how many copies of one sleep are made where something else writes to the disks all the time.
	tornTries = 2
)

// failedRetries are how long after one, two and more failures in a row the next copy is made. One to which
// something else wrote counts like a failure.
var failedRetries = []time.Duration{10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// canceledRetries are how long after one, two and more copies in a row that were given up the next one is
// made. The game that the first was given up for has its Pod soon; one that still hasn't can't start.
var canceledRetries = append([]time.Duration{time.Minute}, failedRetries...)

// need is what is known of a Server when a copy may be due.
type need struct {
	server string
	spec   *v1alpha1.BackupSpec
	// since is when the owner was made: times of its schedule before that aren't missed.
	since time.Time
	// usedAt is when a Pod that may write to the disks was last made; zero, where there are none.
	usedAt time.Time
	// awake is set while the game's Pod is there.
	awake bool
	// restoring is set while a Restore writes to the disks, or is about to.
	restoring bool
	// backups are all of the Server's.
	backups []*v1alpha1.Backup
}

// decision is what due decides.
type decision struct {
	// name and cause are those of a Backup to be made; empty: none is.
	name, cause string
	// problem is why the schedule can't be followed.
	problem error
	// requeueAfter is when to look again though nothing changes.
	requeueAfter requeue.After
}

// due decides whether a copy of a Server is due. A sleeping game's is where its disks were used after
// the last good copy began, and another one where a time of the schedule has passed since. A copy that
// waits or runs serves both. A Restore goes before the copy of a game that sleeps. One that failed is made
// again later, and later still; so is one that was given up, until the game has used its disks again. One to
// which something else wrote is made again once, and then counts: the copies of one sleep are not to push
// out those of the sleeps before.
func due(now time.Time, n need) decision {
	var d decision
	var wanted time.Time // what the copy is to be younger than
	if s := n.spec.Schedule; s != nil {
		t, err := schedule.ParseTimes(s.Cron, s.TimeZone)
		if err != nil {
			d.problem = fmt.Errorf("spec.backup.schedule: %w", err)
		} else {
			next, ok := t.Next(now)
			if !ok {
				next = now.Add(schedule.LookAgain)
			}
			d.requeueAfter.AtMost(next.Sub(now))
			if last, ok := t.Last(now, missedFor); ok && last.After(n.since) && !began(n.backups, last, false) {
				wanted, d.cause = last, causeSchedule
			}
		}
	}
	if (n.spec.OnSleep == nil || *n.spec.OnSleep) && !n.awake && !n.restoring && !sleepCopied(n) {
		wanted, d.cause = times.Latest(wanted, n.usedAt), causeSleep
	}
	if d.cause == "" || n.usedAt.IsZero() || underWay(n.backups) {
		d.cause = ""
		return d
	}
	if wait := retryAt(n.backups, wanted, n.usedAt).Sub(now); wait > 0 {
		d.cause = ""
		d.requeueAfter.AtMost(wait)
		return d
	}
	d.name = n.server + "-" + now.UTC().Format(stamp)
	return d
}

// began reports whether a good copy began at a time or later; atRest: one of disks at rest.
func began(backups []*v1alpha1.Backup, at time.Time, atRest bool) bool {
	for _, b := range backups {
		s := &b.Status
		if s.Phase == v1alpha1.CopyComplete && s.StartTime != nil && !s.StartTime.Time.Before(at) && (s.AtRest || !atRest) {
			return true
		}
	}
	return false
}

// sleepCopied reports whether the disks were copied at rest since they were used, or often enough while
// something else wrote to them. That is no more often than copies stay: one that went isn't counted.
func sleepCopied(n need) bool {
	tries := 0
	for _, b := range n.backups {
		if torn(b, n.usedAt) {
			tries++
		}
	}
	return tries >= min(tornTries, max(int(n.spec.Keep.Last), 1)) || began(n.backups, n.usedAt.Add(time.Second), true)
}

// torn reports whether something else than the game wrote to the disks while a sleep was copied. A copy that
// was made before they were used may have been made beside the game, which woke before it began.
func torn(b *v1alpha1.Backup, usedAt time.Time) bool {
	return b.Labels[wellknown.BackupCauseLabel] == causeSleep && b.Status.Phase == v1alpha1.CopyComplete && !b.Status.AtRest &&
		b.CreationTimestamp.After(usedAt)
}

// underWay reports whether a Backup waits or runs.
func underWay(backups []*v1alpha1.Backup) bool {
	for _, b := range backups {
		if !ended(b) && b.DeletionTimestamp.IsZero() {
			return true
		}
	}
	return false
}

// ended reports whether a Backup has come to its end, good or bad.
func ended(b *v1alpha1.Backup) bool {
	switch b.Status.Phase {
	case v1alpha1.CopyComplete, v1alpha1.CopyFailed, v1alpha1.CopyCanceled:
		return true
	default:
		return false
	}
}

// retryAt is when the next copy may be made after those that have come to nothing since a time. Those that
// were given up before the disks' last use don't count: the game had its turn.
func retryAt(backups []*v1alpha1.Backup, since, usedAt time.Time) time.Time {
	var last time.Time
	failed, canceled := 0, 0
	for _, b := range backups {
		end := endOf(b)
		switch {
		case end.Before(since):
			continue
		case b.Status.Phase == v1alpha1.CopyFailed, torn(b, usedAt):
			failed++
		case b.Status.Phase == v1alpha1.CopyCanceled && !end.Before(usedAt):
			canceled++
		default:
			continue
		}
		last = times.Latest(last, end)
	}
	if failed == 0 && canceled == 0 {
		return time.Time{}
	}
	pauses := failedRetries
	if failed == 0 {
		pauses = canceledRetries
	}
	return last.Add(pauses[min(failed+canceled, len(pauses))-1])
}

// endOf is when a Backup came to its end, or else when it was made.
func endOf(b *v1alpha1.Backup) time.Time {
	if t := b.Status.CompletionTime; t != nil {
		return t.Time
	}
	return b.CreationTimestamp.Time
}
