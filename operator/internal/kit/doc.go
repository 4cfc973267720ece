// Package kit has what the controllers of all kinds do alike: which notices they tell
// people, what they remember between passes, how they are told of changes, what they do
// about errors that time mends, and how they write a status. It knows nothing of any kind
// and decides nothing: planners are pure and don't import it.
package kit
