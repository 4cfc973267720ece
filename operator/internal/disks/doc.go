// Package disks knows the disks of each Server, whether the Server exists or not: those of a
// GameType that sleeps are there though no Server is. It builds their claims, and the Pods beside
// the game that mount them.
package disks
