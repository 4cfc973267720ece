// Package hostports decides which host ports a Server's Pod has. A Picker, which takes a lock,
// picks numbers while a Pod is created; the rest reads what a Server asks for and what its Pod
// has. It writes nothing.
package hostports
