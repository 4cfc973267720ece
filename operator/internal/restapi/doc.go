// Package restapi is the REST API: servers by number for panels, allocation for matchmakers, and a
// page for people. It turns HTTP into calls of the packages hosting and allocate, and answers in
// JSON; it decides nothing itself.
//
// Each call needs a bearer token, whose owner must have the rights in Kubernetes that the same
// change by kubectl would need, see the package access. Replicas share nothing but the cluster.
package restapi
