// Package promquery asks Prometheus servers that users name for numbers.
//
// # What is reached
//
// A name such as prometheus.monitoring.svc is a Service of the cluster: it is looked up in the
// operator's cache and its ClusterIP is dialled, so that no DNS leads elsewhere. One of another
// namespace is asked only where it lets that in. Everything else is a URL, and the address that
// is dialled must be among the administrator's: see package outbound. No redirect is followed, and
// what is shown to a server is what package triggerauth allows.
//
// # What it may cost
//
// Equal questions of a namespace, with the same credentials, are one for FreshFor. A namespace
// has a part of all questions that are asked at once, a server a part, and a namespace at that
// server a part of that: who waits for a turn at a slow or dead server takes no place of anybody
// who asks another one, and one namespace's slow queries leave room for others'. A query has 3
// seconds and an answer 256 KiB.
//
// # What an answer means
//
// A number, or an error that says what to change: see number.go.
package promquery
