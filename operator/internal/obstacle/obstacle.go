// Package obstacle has what stands in the way of an ElasticService, as conditions and events
// tell it. It knows no obstacle itself.
package obstacle

import "fmt"

// Obstacle is something in the spec or around it that a user must change before
// the service can sleep and wake as asked. It becomes the reason and message of Ready. One
// that nothing can be done against stops a pass; with a flaw it goes on with what is left.
type Obstacle struct {
	Reason  string
	Message string
}

// Error makes an obstacle an error.
func (o *Obstacle) Error() string { return o.Message }

// New is an obstacle with a reason, which is a condition's, and a message for people.
func New(reason, format string, args ...any) *Obstacle {
	return &Obstacle{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
