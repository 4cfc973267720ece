// Package scalewebhook asks users' webhooks how many replicas there are to be. Who writes a
// GameAutoscaler chooses what is asked, so that a webhook is a stranger to the operator: it may
// be slow, broken or hostile, and so may be the address that is named for it.
//
// # What is reached
//
// A webhook is a Service of the cluster or, where the administrator lists addresses, a URL.
// A Service is looked up in the operator's cache and its ClusterIP is dialled; no name is
// resolved, so that neither DNS nor a Service of type ExternalName leads elsewhere. One of another
// namespace is asked only where Options.MayUse agrees: else who may write a GameAutoscaler could
// post to everything in the cluster, past its NetworkPolicies. For a URL the address that is
// dialled is checked when it is dialled, after the name has been resolved. Loopback,
// link-local and multicast addresses, the clouds' metadata services and what the operator
// reserves, its API server above all, are never dialled, whatever the list has. The operator shows no
// credentials to a webhook and follows no redirect.
//
// Behind a ClusterIP kube-proxy leads to what the Service's EndpointSlices have. Those of a
// Service with a selector are Kubernetes' own. Who may write EndpointSlices by hand can lead
// to any address but loopback, link-local, multicast and unspecified ones, which the
// API server refuses there. The roles edit and admin may write none (nor Endpoints, since
// Kubernetes 1.22, CVE-2021-25740). Whoever has been given that right by an administrator could
// make the operator post a Review there, without credentials, and see how a refusal begins.
//
// # What it may cost
//
// A question has a timeout that covers it to the answer's last byte, an answer has 64 KiB at
// most and its header 16 KiB. A namespace has a part of all questions that are asked at once,
// and an endpoint a part of that; who waits for a turn waits without a worker: Poll never
// blocks. An endpoint that fails three times on end isn't asked for a while: its circuit is open. An
// endpoint belongs to the namespace of those who ask. So one namespace's wrong caBundle, or its
// short timeout, opens no circuit of another.
//
// # Answers
//
// An answer is what its format has, or an error: see parse.go. An error means that there is no
// answer, never a number. All errors are an *Error: a reason, and a sentence that tells a
// person what to change.
package scalewebhook
