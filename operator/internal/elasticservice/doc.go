// Package elasticservice is the controller that moves services between awake and asleep. A
// pass has phases, which Reconcile does one after the other:
//
//   - deletion and finalizer: what was released already is left alone;
//   - observe: the Service, the target's scale and pods, the resolvers and the idle signals;
//   - prepare: resolver ports and the private Service, on which a plan builds;
//   - plan: package planner decides, by package idleness where the service may be idle;
//   - apply: endpoints, and then the target's scale;
//   - status: package status writes the result, and package lookout why no server is up.
//
// What the planner decides is written in the order that keeps every connection alive:
//
//   - falling asleep: resolver endpoints are ready, and every resolver listens and
//     knows of it, before the target goes to zero; a client in between cancels;
//   - waking: a server is up before the resolver stops being ready;
//   - a resolver's endpoint stays, without new traffic, while it has clients.
//
// A sleep is committed by writing phase Asleep under the resourceVersion of a
// live read, before the target is scaled. A wake writes lastWakeTime into the
// same object: whichever comes second sees the other.
//
// The package writes the ElasticService, its private headless Service, the
// EndpointSlices labelled as managed by Dormouse, and the target's scale. It
// must not touch the user's Service or any other slice.
package elasticservice
