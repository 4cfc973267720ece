// Package sim replays weeks of players against GameAutoscalers, with a simulated clock and no
// cluster. Decisions are the operator's own, by package planner. What is simulated around
// them is what decides who waits and what runs:
//
//   - Players come by chance, play for a time and leave; see Generate. One who finds no room is
//     held until there is some, and gives up after patience.
//   - A Server takes bootTime to get Ready, and has room for a number of players. New players go
//     to any Ready Server that has room and doesn't drain, all alike, as a Service sends them.
//   - A Fleet deletes empty Servers first, drains those with the fewest players and deletes them
//     when they are empty, and takes back those that drain before it makes new ones. An update
//     replaces Servers one by one, as a GameType's does.
//   - An ElasticService sleeps when nobody has played for sleepAfter, and wakes for whoever comes.
//   - An autoscaler sees a change a short lag after it, the time of a report.
//
// A run depends on the trace, the seed and the policy alone, so that it can be repeated. Left out
// are failures of nodes and Servers, images that are pulled, and players who come back because
// they gave up.
package sim
