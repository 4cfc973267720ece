// Package conditions names the conditions of Dormouse's kinds. Why they are as they are is named by
// package reasons.
package conditions
