// Package kit has what the controllers of all kinds have in common: the events that they emit,
// what they remember between passes, how they watch for changes, how they retry after errors
// that time resolves, and how they write a status. It knows nothing of any kind and decides
// nothing: planners are pure and don't import it.
package kit
