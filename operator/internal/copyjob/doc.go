// Package copyjob builds the Jobs in which the sidecar's image copies a Server's disks, puts a copy
// back, or deletes one, and reads what became of such a Job. It decides nothing.
package copyjob
