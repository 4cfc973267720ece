// Package report tells the operator what a game does, and hears from it what the
// game is to do: one report is always under way, which the operator answers once
// it has something to say. It decides when to report and nothing of what.
package report
