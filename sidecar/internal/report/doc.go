// Package report reports a game's state to the operator, and receives the operator's orders for
// it. One report is under way, and the operator answers it once there is news. For up to three
// seconds after a replica of the operator has ended none is under way, unless there is news. The
// package decides when to report, but not what.
package report
