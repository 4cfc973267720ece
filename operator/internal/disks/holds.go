package disks

import (
	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
)

// BackupHolds reports whether a Backup needs its Server's disks to stay at rest, as its status says:
// from before it looks at them until they are copied. One that copies beside a running game doesn't.
func BackupHolds(b *v1alpha1.Backup) bool {
	return b.Status.Phase == v1alpha1.CopyRunning && b.Status.AtRest &&
		condition.ReasonOf(b.Status.Conditions, conditions.Complete) != reasons.SnapshotTaken
}
