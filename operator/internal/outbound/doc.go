// Package outbound is for questions to servers that users name: which addresses may be dialled
// at all, how connections to them are made, and what is said when there is no answer. Who may
// write an object chooses the server, so that it is a stranger to the operator: it may be slow,
// broken or hostile, and the address that is named for it may be something else's.
package outbound
