// Package planner decides how many Servers a GameType or a Fleet is to have, by what its
// GameAutoscaler asks for. The decision is Make, a pure function of the time, the spec, the
// history of earlier decisions, and what was observed. Whoever calls it keeps the history that the
// plan returns; the controller and simulations do.
//
// A pass decides in this order:
//
//  1. A target that is being deleted is left alone. One that sleeps, with no Servers asked for,
//     is too, except for an open window of a schedule that may wake it, or a forecast that may.
//  2. Each policy wishes a number of Servers, rests without a wish, or can't be evaluated. The
//     highest wish counts. With none there are to be minReplicas if every policy was evaluated,
//     and else as many as there are.
//  3. Stabilization, as in Kubernetes' HorizontalPodAutoscaler: replicas grow to the lowest wish
//     of scaleUp's window at most, and shrink to the highest one of scaleDown's. A wish counts
//     from when it was made until another takes its place, however often it is made again.
//  4. No Servers are taken away while a policy can't be evaluated, reports are stale, or an
//     update is under way.
//  5. A change waits for its cooldown, and is of maxStep Servers at most.
//  6. minReplicas and maxReplicas hold, whatever the steps before gave.
//
// What is unknown never takes Servers away, and a clock that goes backwards makes nothing wait
// for longer than the spec says. The history is bounded, whatever the windows and the interval
// are.
package planner
