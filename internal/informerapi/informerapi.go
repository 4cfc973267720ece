// Package informerapi is the contract between the operator and the resolver: a resolver's wake
// call, and a resolver's answers about the ports that it serves and the clients that it has. It
// has types and names only.
package informerapi

import "time"

// WakePath is where each operator replica takes wake calls (POST).
const WakePath = "/informer/incoming-request"

// Paths on which a resolver pod answers the operator (GET).
const (
	RoutesPath   = "/routes"
	SessionsPath = "/sessions"
	// UIDQuery is the parameter of both that narrows an answer to one
	// ElasticService.
	UIDQuery = "uid"
	// UIDsQuery narrows it to several, MaxUIDs at most, with commas between them. A resolver that
	// doesn't know it answers about all.
	UIDsQuery = "uids"
)

// MaxUIDs bounds the ElasticServices in UIDsQuery: a request's head has 4 KiB at most, a token of 2 KiB
// included.
const MaxUIDs = 40

// MaxWakeCount bounds WakeRequest.Count.
const MaxWakeCount = 1_000_000

// PreferHeader is the header of a wake call whose value is RespondAsync, and nothing else, where WakeRequest.Async
// is set (RFC 7240, section 4.1). Operators that don't know it ignore it.
const (
	PreferHeader = "Prefer"
	RespondAsync = "respond-async"
)

// WakeRequest is the body of a wake call.
type WakeRequest struct {
	// Count is how many clients wait; 1 at least.
	Count int `json:"count"`
	// Svc is the name of the Service.
	Svc string `json:"svc"`
	// Namespace is the Service's namespace.
	Namespace string `json:"namespace"`
	// Async asks for the answer as soon as the target is scaled up, with WakeResponse.LastWakeTime where the wake
	// isn't in the service's status yet. It isn't in the body: see PreferHeader.
	Async bool `json:"-"`
}

// WakeResponse is the body of a 202 answer.
type WakeResponse struct {
	// Phase is the service's phase after the call.
	Phase string `json:"phase"`
	// Replicas is the target's desired replicas after the call.
	Replicas int32 `json:"replicas"`
	// LastSleepTime is when the service last fell asleep, by its status; nil where it never
	// did. A caller that watches the status and hasn't seen that yet doesn't know which pods
	// are from before the sleep, and must connect no client until it has.
	LastSleepTime *time.Time `json:"lastSleepTime,omitempty"`
	// LastWakeTime is set, and LastSleepTime isn't, where the target was scaled up from zero and the wake is
	// still to be written to the status. It is what the status's lastWakeTime is going to be. A caller must
	// connect no client until it has seen just that there, or has another answer: a later one may be of an
	// operator whose clock is ahead, and from before the last sleep. Only an Async request is answered so.
	LastWakeTime *time.Time `json:"lastWakeTime,omitempty"`
}

// ErrorResponse is the body of every answer that refuses a call.
type ErrorResponse struct {
	// Error is a sentence about what to change.
	Error string `json:"error"`
}

// RoutesResponse has the routes that a resolver pod serves.
type RoutesResponse struct {
	Routes []Route `json:"routes"`
}

// Route is one ElasticService as a resolver pod serves it.
type Route struct {
	// UID is the ElasticService's UID.
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Service is the name of the Service that it stands in for.
	Service string `json:"service"`
	// Phase is the phase that the pod has seen last.
	Phase string `json:"phase"`
	// PhaseSince is when that phase began; nil where the status doesn't have it.
	PhaseSince *time.Time  `json:"phaseSince,omitempty"`
	Ports      []RoutePort `json:"ports"`
}

// RoutePort is one service port on a resolver pod.
type RoutePort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	// Port is the resolver port.
	Port int32 `json:"port"`
	// Front is the namespace/name of the Service that ElasticServices share on Port;
	// empty for a port of the ElasticService's own Service.
	Front string `json:"front,omitempty"`
	// Listening reports whether the pod takes clients on Port for this route.
	Listening bool `json:"listening"`
	// Error is why it does not.
	Error string `json:"error,omitempty"`
}

// SessionsResponse has a resolver pod's clients. A service that is not listed has had no client
// since Started.
type SessionsResponse struct {
	// Started is when the pod began to take clients.
	Started time.Time `json:"started"`
	// Now is the pod's clock, against which the other times are to be read.
	Now      time.Time  `json:"now"`
	Services []Sessions `json:"services"`
}

// Sessions are the clients of one ElasticService on a resolver pod.
type Sessions struct {
	// UID is the ElasticService's UID.
	UID string `json:"uid"`
	// Sessions is the number of clients that are relayed to a backend.
	Sessions int32 `json:"sessions"`
	// Queued is the number of clients that are held.
	Queued int32 `json:"queued"`
	// Unvalidated is how many of Sessions are of clients that may not exist: nothing has shown yet
	// that they receive what is sent to them. They keep no service awake. An older resolver
	// doesn't tell.
	Unvalidated int32 `json:"unvalidated,omitempty"`
	// LastActive is when a client was last there: now while one is.
	LastActive time.Time `json:"lastActive"`
}
