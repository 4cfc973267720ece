package kindwatch

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// State is how it is with the watch of a kind.
type State string

const (
	// Beginning is that of a kind whose watch doesn't have all objects yet, or begins anew.
	Beginning State = "beginning"
	// Watched is that of a kind whose changes are told.
	Watched State = "watched"
	// Unknown is that of a kind that the API server doesn't have.
	Unknown State = "unknown"
	// Unsuited is that of a kind that has no namespace, no scale where one is wanted, or no watch.
	Unsuited State = "unsuited"
	// Forbidden is that of a kind that the operator may not list and watch.
	Forbidden State = "forbidden"
	// Failed is that of a kind that can't be watched just now.
	Failed State = "failed"
	// Excess is that of a kind that isn't watched because others are, and there is a bound.
	Excess State = "excess"
)

// States are all of them.
var States = []State{Beginning, Watched, Unknown, Unsuited, Forbidden, Failed, Excess}

// ErrUnsuited means that a kind is there and can't be watched for what it is.
var ErrUnsuited = errors.New("the kind isn't one that can be watched")

// stateOf is the state of a kind whose watch ended with this error.
func stateOf(err error) State {
	switch {
	case errors.Is(err, errAnew):
		return Beginning
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return Unknown
	case errors.Is(err, ErrUnsuited), apierrors.IsMethodNotSupported(err):
		return Unsuited
	case apierrors.IsForbidden(err):
		return Forbidden
	}
	return Failed
}

// final reports whether a watch is given up for an error, and begins anew later. After others it
// goes on by itself.
func final(err error) bool { return stateOf(err) != Failed }
