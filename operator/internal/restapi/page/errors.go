package page

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
)

// Refusal is an error that the page shows to its caller as it is.
type Refusal struct {
	// Status is that of the answer, such as 404.
	Status int
	// Sentence says what is wrong and what to change.
	Sentence string
}

// Error is the sentence.
func (r *Refusal) Error() string { return r.Sentence }

// Refuse makes a Refusal.
func Refuse(status int, format string, args ...any) error {
	return &Refusal{Status: status, Sentence: fmt.Sprintf(format, args...)}
}

// refusalOf makes a Refusal of any error, and logs those that aren't one under a number that the
// caller sees.
func (p *page) refusalOf(r *http.Request, err error) *Refusal {
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.Is(err, context.DeadlineExceeded):
		return &Refusal{http.StatusServiceUnavailable, "The cluster took too long to answer. Try again."}
	case r.Context().Err() != nil:
		// Nobody reads the answer.
		return &Refusal{http.StatusServiceUnavailable, "The request was given up."}
	}
	number := rand.Text()[:8]
	p.log.Error(err, "answer a request of the page", "path", r.URL.Path, "number", number)
	return &Refusal{
		http.StatusInternalServerError,
		"Something went wrong that Dormouse did not expect. The operator's log has it under the number " + number + ".",
	}
}
