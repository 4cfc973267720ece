// Package game has the state of a game: from the game's own reports, the probe's answers, and
// the operator's answers. Each item is kept with its time, because reports of a process that is
// gone no longer count.
//
// The decisions are functions of that and of the time. The package opens no
// socket, reads no file and logs nothing: servers, the probe and the reports talk
// to a Game and watch it.
package game
