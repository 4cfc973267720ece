package restore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
)

// step is what a pass does.
type step string

const (
	// rest does nothing.
	rest step = "rest"
	// wait lets the disks go and says for what it waits.
	wait step = "wait"
	// hold takes the disks and looks whether they are at rest.
	hold step = "hold"
	// begin makes the disks that aren't there and writes that it is Running.
	begin step = "begin"
	// run makes the Job that writes the disks.
	run step = "run"
	// again ends a Job that was killed, so that another one brings the disks out of between.
	again step = "again"
	// pause waits until another Job may go on where the last one left the disks half moved.
	pause step = "pause"
	// watch says how the Job is.
	watch step = "watch"
	// complete and fail write how it ended.
	complete step = "complete"
	fail     step = "fail"
	// giveUp writes that a Restore ends once its disks are whole.
	giveUp step = "giveUp"
	// stop deletes the Job of a Restore that is given up, and settle makes the one that brings the disks
	// out of between after that.
	stop   step = "stop"
	settle step = "settle"
	// leave removes what only the copying needed, and lets the disks go.
	leave step = "leave"
	// noteReady writes that the Server was Ready.
	noteReady step = "noteReady"
	// drop makes the Job that deletes what was on the disks before.
	drop step = "drop"
	// giveWay ends that Job, because the game is wanted.
	giveWay step = "giveWay"
	// dropped writes that what was there before isn't any more; dropFailed tries that again later.
	dropped    step = "dropped"
	dropFailed step = "dropFailed"
)

// action is a step, and what the status says of it.
type action struct {
	step            step
	reason, message string
}

// observed is what a pass sees of a Restore's surroundings.
type observed struct {
	// backup is the one that is put back; nil: there is none.
	backup *v1alpha1.Backup
	// set has those of the Server's disks that the Backup has; nil: the Server isn't known, and left none
	// of those that were written.
	set *disks.Set
	// game is set where the Server has a Pod, and runs where it is to have one.
	game, runs bool
	// readySince is since when the Server is Ready; nil: it isn't.
	readySince *metav1.Time

	// held is set where this Restore has the disks in the table. Only then the others are known.
	held bool
	// users are the Pods that have the disks and haven't ended, by the API server; its own are its
	// Job's.
	users disks.Users
	// others are who else copies the disks.
	others []string
	// wanted is set where a game was kept from starting since the disks were taken.
	wanted bool

	// job is the Job of the Restore's phase, and outcome what became of it; nil: there is none.
	job     *batchv1.Job
	outcome copyjob.Outcome
	// settles is set where the Job is the one that brings the disks out of between.
	settles bool
	// repeated is set where the Job is the second one, because the first was killed.
	repeated bool
	// paused is how long it is until another Job may follow one that left the disks half moved; 0: it
	// may now.
	paused time.Duration
	// triedAgo is how long ago what was there before could last not be deleted; 0: never.
	triedAgo time.Duration
}

// After a Job that left the disks half moved another one follows after the first of these, and then
// after twice as long each time, up to the last.
const firstPause, lastPause = time.Minute, 10 * time.Minute

// pauseOf is how long after a Job another one follows, by how many have left the disks half moved.
func pauseOf(failures int) time.Duration {
	return min(firstPause<<min(failures-1, 10), lastPause)
}

// dropRetry is after how long it is tried again to delete what was on the disks before.
const dropRetry = 10 * time.Minute

// next decides what a pass does.
func next(r *v1alpha1.Restore, o observed) action {
	switch r.Status.Phase {
	case v1alpha1.CopyRunning:
		return nextRunning(r, o)
	case v1alpha1.CopyComplete:
		return nextComplete(r, o)
	case v1alpha1.CopyFailed, v1alpha1.CopyCanceled:
		return nextOver(r)
	case v1alpha1.CopyPending:
	}
	return nextPending(r, o)
}

// nextOver is for a Restore that is over: what only the copying needed goes.
func nextOver(r *v1alpha1.Restore) action {
	if guarded(r) {
		return action{step: leave}
	}
	return action{step: rest}
}

func nextPending(r *v1alpha1.Restore, o observed) action {
	waits := func(reason, format string, args ...any) action {
		return action{wait, reason, fmt.Sprintf(format, args...)}
	}
	switch {
	case !r.DeletionTimestamp.IsZero():
		return nextOver(r)
	case o.backup == nil:
		return waits(reasons.BackupNotComplete, "There is no Backup %s.", r.Spec.Backup)
	case o.backup.Status.Phase == v1alpha1.CopyFailed, o.backup.Status.Phase == v1alpha1.CopyCanceled:
		return action{fail, reasons.BackupNotComplete, fmt.Sprintf("Backup %s is %s and has no copy; restore another one.", r.Spec.Backup, o.backup.Status.Phase)}
	case o.backup.Status.Phase != v1alpha1.CopyComplete || o.backup.Status.To == nil:
		return waits(reasons.BackupNotComplete, "Waits until Backup %s is Complete.", r.Spec.Backup)
	case o.set == nil:
		return waits(reasons.ServerUnknown, "There is no Server %s with disks, and no GameType that has a place of that name.", r.Spec.Server)
	case len(o.set.Spec.Storage) == 0:
		return action{fail, reasons.ServerUnknown, fmt.Sprintf("Backup %s has the disks %s, and Server %s has none of them.",
			r.Spec.Backup, strings.Join(o.backup.Status.Disks, ", "), r.Spec.Server)}
	case o.game:
		return waits(reasons.DisksInUse, "Waits until the game's Pod is gone: stop Server %s, or let it sleep.", r.Spec.Server)
	case !o.held:
		return action{step: hold}
	case len(o.others) > 0:
		return waits(reasons.DisksInUse, "Waits for %s, which copies the disks.", o.others[0])
	case len(o.users.Others) > 0:
		return waits(reasons.DisksInUse, "Waits until Pod %s is gone, which has the disks.", o.users.First())
	}
	return action{begin, reasons.Preparing, "The disks are about to be written."}
}

func nextRunning(r *v1alpha1.Restore, o observed) action {
	switch {
	case !o.held:
		return action{step: hold}
	case !r.DeletionTimestamp.IsZero():
		return nextGivenUp(r, o, action{step: leave})
	case o.settles, givenUp(r):
		return nextGivenUp(r, o, lost(r, o))
	case o.job != nil && !o.outcome.Done && o.job.DeletionTimestamp.IsZero():
		message := "The disks are written."
		if o.outcome.Message != "" {
			message = o.outcome.Message
		}
		return action{watch, reasons.Restoring, message}
	case o.job != nil && !o.outcome.Done, o.job != nil && len(o.users.Own) > 0:
		return action{step: rest} // it is about to be gone
	case o.job != nil && o.outcome.Failed && o.outcome.Report.Between && o.paused > 0:
		return action{pause, reasons.Restoring, o.outcome.Message + " The disks may be half moved, and another try goes on from there soon."}
	case o.job != nil && o.outcome.Failed && o.outcome.Report.Between:
		return action{step: again}
	case o.job != nil && o.outcome.Failed && o.outcome.Report.Error == "" && !o.repeated:
		return action{step: again}
	case o.job != nil && o.outcome.Failed && o.outcome.Report.Error == "" && o.set != nil:
		// Nobody knows how far it came. That is written first: with its Job the reason is gone.
		return action{giveUp, reasons.RestoreFailed, killedTwice + " The disks are made whole first."}
	case o.job != nil && o.outcome.Failed:
		return action{fail, reasons.RestoreFailed, o.outcome.Message}
	case o.job != nil:
		return action{complete, reasons.Restored, "The disks have what Backup " + r.Spec.Backup + " has."}
	case len(o.users.Own) > 0:
		return action{step: rest} // somebody deleted the Job
	case o.backup == nil || o.set == nil || len(o.set.Spec.Storage) == 0:
		return nextGivenUp(r, o, lost(r, o))
	case len(o.users.Others) > 0:
		return action{watch, reasons.DisksInUse, "Waits until Pod " + o.users.First() + " is gone, which has the disks."}
	}
	return action{step: run}
}

const killedTwice = "Its Job was killed twice: with its node, say, or because it took longer than spec.backup.timeout."

// givenUp reports whether a Restore that runs ends once its disks are whole.
func givenUp(r *v1alpha1.Restore) bool { return reasonOf(r) == reasons.RestoreFailed }

// givenUpOr is the reason that a Restore has meanwhile: that it is given up, which must not be forgotten,
// or another one.
func givenUpOr(r *v1alpha1.Restore, reason string) string {
	if givenUp(r) {
		return reasons.RestoreFailed
	}
	return reason
}

// lost ends a Restore that can't go on.
func lost(r *v1alpha1.Restore, o observed) action {
	why := killedTwice
	if o.backup == nil || o.set == nil || len(o.set.Spec.Storage) == 0 {
		why = fmt.Sprintf("Backup %s or the disks of Server %s are gone.", r.Spec.Backup, r.Spec.Server)
	}
	return action{fail, reasons.RestoreFailed, fmt.Sprintf(
		"%s No disk is half moved: they have what the Backup has, with what was there before in .dormouse-before-%s, or are as they were.", why, idOf(r),
	)}
}

// nextGivenUp is for a Restore that is deleted while it runs, or can't go on, and ends with over. Its Job may
// be killed at any moment, and nobody may find the disks half moved.
func nextGivenUp(r *v1alpha1.Restore, o observed, over action) action {
	whole := o.outcome.Done && (!o.outcome.Failed || o.outcome.Report.Error != "" && !o.outcome.Report.Between)
	switch {
	case o.job != nil && whole:
		return over
	case o.job != nil && !o.settles:
		return action{step: stop}
	case o.job != nil && !o.outcome.Done && o.job.DeletionTimestamp.IsZero():
		return action{watch, givenUpOr(r, reasons.Restoring), "It is given up, and the disks are made whole first. " + o.outcome.Message}
	case o.job != nil && !o.outcome.Done, len(o.users.Own) > 0:
		return action{step: rest} // it is about to be gone
	case o.job != nil && o.paused > 0:
		return action{pause, givenUpOr(r, reasons.Restoring), o.outcome.Message + " The disks may be half moved, and another try goes on from there soon."}
	case o.job != nil:
		return action{step: again}
	case condition.ReasonOf(r.Status.Conditions, conditions.Complete) == reasons.Preparing, o.set == nil || len(o.set.Spec.Storage) == 0:
		return over
	case len(o.users.Others) > 0:
		return action{watch, givenUpOr(r, reasons.DisksInUse), "Waits until Pod " + o.users.First() + " is gone, which has the disks."}
	}
	return action{step: settle}
}

func nextComplete(r *v1alpha1.Restore, o observed) action {
	ready := r.Status.ServerReadyTime != nil
	switch {
	case guarded(r):
		return action{step: leave}
	case !r.DeletionTimestamp.IsZero() || !r.Status.PreviousKept:
		return action{step: rest}
	case !ready && o.readySince != nil && r.Status.CompletionTime != nil && !o.readySince.Before(r.Status.CompletionTime):
		return action{step: noteReady}
	case o.job != nil && o.outcome.Done && !o.outcome.Failed:
		return action{step: dropped}
	case o.job != nil && o.outcome.Done:
		return action{dropFailed, "", o.outcome.Message}
	case o.job != nil && (o.wanted || o.game):
		return action{step: giveWay}
	case o.job != nil && !o.held:
		return action{step: hold}
	case o.held && o.job == nil && (o.wanted || o.game || len(o.users.Others) > 0 || len(o.others) > 0):
		if len(o.users.Own) > 0 {
			return action{step: rest}
		}
		return action{step: wait}
	case o.job != nil, !ready, o.set == nil || len(o.set.Spec.Storage) == 0, o.game, o.runs, o.triedAgo > 0 && o.triedAgo < dropRetry:
		return action{step: rest}
	case !o.held:
		return action{step: hold}
	}
	return action{step: drop}
}

// over reports whether nothing is left to do for a Restore.
func over(r *v1alpha1.Restore) bool {
	switch r.Status.Phase {
	case v1alpha1.CopyFailed, v1alpha1.CopyCanceled:
		return !guarded(r)
	case v1alpha1.CopyComplete:
		return !guarded(r) && !r.Status.PreviousKept
	case v1alpha1.CopyPending, v1alpha1.CopyRunning:
	}
	return false
}

// guarded reports whether the Restore has its finalizer.
func guarded(r *v1alpha1.Restore) bool { return slices.Contains(r.Finalizers, finalizer) }
