// Package gameautoscaler gives a GameType or a Fleet as many Servers as its GameAutoscaler asks for.
// Package planner decides how many. This package observes, asks the webhooks, writes the target's
// scale and the status, and keeps the history between decisions.
package gameautoscaler
