// Package game knows what a game is doing: from what the game said itself, what
// its probe was answered, and what the operator told. Each thing is kept with when
// it was said, because what a process said that is gone counts no more.
//
// The decisions are functions of that and of the time. The package opens no
// socket, reads no file and logs nothing: servers, the probe and the reports talk
// to a Game and watch it.
package game
