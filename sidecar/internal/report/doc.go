// Package report reports a game's state to the operator, and receives the operator's orders for
// it. One report is always under way, and the operator answers it once there is news. The
// package decides when to report, but not what.
package report
