// Package fleet keeps as many Servers of a template as a Fleet asks for. Its controller
// observes the Fleet's Servers, a pure planner decides which are created, drained, taken back
// and deleted, and the controller does so. Package serverbuilder decides what a Server is made of, and
// startwindow how many of all Fleets start at once; neither knows this package.
//
// The package creates, drains and deletes Servers, and writes the Fleet's status. It must not
// touch Pods, a Server's finalizer or a Server's status: those belong to the Server controller,
// whose deletion guard keeps a deleted Server for as long as somebody plays. For the same
// reason a Fleet needs no finalizer of its own: when it is deleted its Servers outlive it until
// their players have left.
//
// The controller's memory can be lost. A new leader starts with a filled cache. It may create
// one Server too many, which it deletes again, and replaces Servers that fail without waiting
// at first.
package fleet
