// Package backup copies Servers' disks: it makes the Backups that spec.backup of Servers and GameTypes
// asks for, carries out each of them, and deletes those that aren't kept, with what they kept.
//
// Decisions are pure functions: due says when a Server needs a copy, expired which copies go, and next
// what one Backup does now. Planner and Reconciler observe, carry out, and write the status.
//
// A copy has the disks to itself, so that it is of one moment. It takes them in this order: it holds
// them in the leader's table, asks the API server itself whether a Pod has them, writes in its status
// that it runs, and only then makes its Job. A leader that finds such a status knows what the one
// before it was about to do. With whileRunning: Copy, beside a game that runs, it holds nothing.
//
// Somebody who wakes the game meanwhile either waits, or has the Job deleted. The disks are let go
// only when the API server has no Pod of the Job any more.
package backup
