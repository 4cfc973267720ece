// Package chaos plays against Dormouse while a seeded schedule breaks what
// Dormouse runs on, and says which players lost something that they need not
// have lost.
//
// A [schedule.Plan] is all that chance decides, and follows from its seed. [Run] carries
// it out on the local cluster. What a session's packets needed is known from
// the node's connection table and from the server's replies: a session that
// lost something while a part of its way was broken is counted, and one whose
// way was whole is a failure.
package chaos
