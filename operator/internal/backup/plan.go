package backup

import (
	"fmt"
	"time"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
)

// act is what is done with a Backup in a pass.
type act int

const (
	// rest does nothing but say why.
	rest act = iota
	// start takes the disks, looks at them, and begins.
	start
	// startBeside begins beside a game that runs.
	startBeside
	// goOn makes what isn't there yet of what copies, and lets it copy.
	goOn
	// letGo lets the disks go, whose snapshots have their moment.
	letGo
	// giveUp ends what copies.
	giveUp
	// finish writes how it ended, and lets the disks go.
	finish
	// forget deletes what is kept, and then lets a deleted Backup go.
	forget
)

// Times after which a Backup is looked at again though nothing that is watched changes.
const (
	// busyRetry is for disks that others have, which aren't watched.
	busyRetry = 10 * time.Second
	// runningLook is for what a Job's Pod waits for, and for a snapshot.
	runningLook = 10 * time.Second
	// goneLook is for Pods that end.
	goneLook = 2 * time.Second
	// userRetry is for what somebody has to change.
	userRetry = 5 * time.Minute
)

// observed is what is known of a Backup in a pass. It isn't changed.
type observed struct {
	// set has the disks; nil: there are none of that name.
	set *disks.Set
	// template is whether the sidecar's PodTemplate is there.
	template bool
	// earlier is the name of another Backup of the Server that comes first.
	earlier string
	// yields is for how long the game goes first, which was kept from starting.
	yields time.Duration
	// game is set while the cache has a Pod of the game that hasn't ended.
	game bool
	// wanted is set when the game was kept from starting for this Backup.
	wanted bool

	// made is whether there is a Job, or a snapshot, for a Backup that runs.
	made bool
	// stopping is why what copies is being ended; empty: it isn't.
	stopping string
	// gone is set once nothing of it is left that reads the disks.
	gone bool
	// frozen is set once all snapshots have their moment.
	frozen bool
	// outcome is how the copying goes.
	outcome copyjob.Outcome
}

// step is what next decides.
type step struct {
	do act
	// phase, reason and message are for the status; an empty reason leaves it as it is.
	phase           v1alpha1.CopyPhase
	reason, message string
	requeueAfter    time.Duration
}

// next decides what one Backup does now.
func next(b *v1alpha1.Backup, o observed) step {
	deleted := !b.DeletionTimestamp.IsZero()
	switch {
	case b.Status.Phase == v1alpha1.CopyRunning:
		return running(b, o, deleted)
	case deleted:
		return step{do: forget}
	case ended(b):
		return step{}
	}
	return waits(o)
}

// waits decides about a Backup that waits: what keeps it from beginning?
func waits(o observed) step {
	wait := func(after time.Duration, reason, format string, args ...any) step {
		return step{phase: v1alpha1.CopyPending, reason: reason, message: fmt.Sprintf(format, args...), requeueAfter: after}
	}
	switch {
	case o.set == nil:
		return wait(userRetry, reasons.NoServer, "There is no Server of this name with disks of its own, and no GameType with such a place.")
	case o.set.Backup == nil:
		return wait(userRetry, reasons.NotAsked, "%s %s has no spec.backup, which says where copies are kept.", o.set.Owner.Kind, o.set.Owner.Name)
	case targetIsDisk(o.set) != "":
		return wait(userRetry, reasons.TargetIsDisk, "spec.backup.to.claim of %s %s is disk %s itself; name another claim.", o.set.Owner.Kind, o.set.Owner.Name, targetIsDisk(o.set))
	case !o.template:
		return wait(userRetry, reasons.NoSidecar, "The operator's namespace has no PodTemplate for the sidecar, whose image copies.")
	case o.earlier != "":
		return wait(0, reasons.EarlierCopy, "It waits for Backup %s.", o.earlier)
	case o.yields > 0:
		return wait(o.yields, reasons.GameFirst, "The game starts first, which was kept from that.")
	case o.game && o.set.Backup.WhileRunning == v1alpha1.BackupCopies:
		return step{do: startBeside}
	case o.game:
		return wait(0, reasons.DisksInUse, "It waits until Pod %s of the game is gone.", o.set.Name)
	}
	return step{do: start}
}

// running decides about a Backup that copies.
func running(b *v1alpha1.Backup, o observed, deleted bool) step {
	stopping := o.stopping
	switch {
	case stopping != "":
	case o.outcome.Done:
		return finished(b, o)
	case deleted:
		stopping = reasons.Deleted
	case o.wanted && disks.BackupHolds(b) && !o.frozen && cancels(o.set):
		stopping = reasons.GameWoken
	case o.frozen && disks.BackupHolds(b):
		return step{do: letGo, phase: v1alpha1.CopyRunning, reason: reasons.SnapshotTaken, message: "The snapshots have their moment, and are being stored.", requeueAfter: runningLook}
	}
	if stopping == "" {
		s := step{do: goOn, phase: v1alpha1.CopyRunning, reason: reasons.Copying, message: "The disks are being copied.", requeueAfter: runningLook}
		if o.outcome.Message != "" {
			s.message = o.outcome.Message
		}
		if o.frozen {
			s.reason, s.message = reasons.SnapshotTaken, "The snapshots have their moment, and are being stored."
		}
		return s
	}
	if !o.gone {
		return step{do: giveUp, reason: stopping, requeueAfter: goneLook}
	}
	return step{do: finish, phase: v1alpha1.CopyCanceled, reason: stopping, message: canceledWords[stopping]}
}

// canceledWords are why a copy was given up.
var canceledWords = map[string]string{
	reasons.GameWoken:  "It was given up because somebody woke the game.",
	reasons.JobDeleted: "It was given up because somebody deleted its Job.",
	reasons.Deleted:    "It was given up because the Backup was deleted.",
}

// finished decides about a Backup whose copying has ended by itself.
func finished(b *v1alpha1.Backup, o observed) step {
	if o.outcome.Failed {
		return step{do: finish, phase: v1alpha1.CopyFailed, reason: reasons.CopyFailed, message: o.outcome.Message}
	}
	s := step{do: finish, phase: v1alpha1.CopyComplete, reason: reasons.Copied, message: "All files are copied."}
	switch {
	case b.Status.To != nil && b.Status.To.VolumeSnapshot != nil:
		s.message = "The snapshots are ready."
	case !b.Status.AtRest || o.outcome.Report.Changed:
		s.message = "All files are copied. Some may have half of a change: the game ran, or something else wrote meanwhile."
	}
	return s
}

// cancels reports whether a wake gives a copy up. Without a spec players don't wait for it.
func cancels(set *disks.Set) bool {
	return set == nil || set.Backup == nil || set.Backup.OnWake != v1alpha1.BackupOnWakeWait
}

// targetIsDisk is the disk on which its own copies would be kept; empty: none.
func targetIsDisk(set *disks.Set) string {
	claim := set.Backup.To.Claim
	if claim == nil {
		return ""
	}
	for i := range set.Spec.Storage {
		if name := set.Spec.Storage[i].Name; disks.ClaimName(set.Name, name) == claim.Name {
			return name
		}
	}
	return ""
}
