// Package restore puts Backups back on Servers' disks, and fills new disks that begin with another
// Server's or a Backup.
//
// A Restore waits until nothing has the disks, takes them in the table of package disklock, looks at
// the API server once more, writes that it is Running, and only then makes its Job: whoever leads
// next sees the status and goes on. What was on the disks is kept by the Job until the Server has
// been Ready and is at rest again; then another Job deletes it.
//
// What becomes of a Restore is decided by next, a function of what is known. Disks are filled by a
// Filler, with the same Jobs and without an object: that a disk isn't filled yet is noted on its claim,
// and keeps the game from starting.
package restore
