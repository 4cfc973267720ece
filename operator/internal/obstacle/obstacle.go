// Package obstacle has the type for problems of an ElasticService, as conditions and events
// report them. It knows no particular obstacle.
package obstacle

import "fmt"

// Obstacle is something in the spec or around it that a user must change before the service can
// sleep and wake as asked. It becomes the reason and message of Ready. One without a remedy
// ends a pass; after a flaw the pass goes on with the rest.
type Obstacle struct {
	Reason  string
	Message string
}

// Error implements error.
func (o *Obstacle) Error() string { return o.Message }

// New makes an obstacle with a reason, which is a condition's, and a message for people.
func New(reason, format string, args ...any) *Obstacle {
	return &Obstacle{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
