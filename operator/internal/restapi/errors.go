package restapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/restapi/access"
	"dormouse.dev/dormouse/operator/internal/restapi/gamecalls"
	"dormouse.dev/dormouse/operator/internal/restapi/hosting"
	"dormouse.dev/dormouse/operator/internal/text"
)

// Codes of errors.
const (
	codeInvalid         = "invalid"
	codeUnauthenticated = "unauthenticated"
	codeForbidden       = "forbidden"
	codeNotFound        = "not_found"
	codeNotAllowed      = "method_not_allowed"
	codeTimeout         = "timeout"
	codeConflict        = "conflict"
	codeTooLarge        = "too_large"
	codeMediaType       = "unsupported_media_type"
	codeTooMany         = "too_many_requests"
	codeRefused         = "refused"
	codeUnavailable     = "unavailable"
	codeNoServer        = "no_server"
	codeInternal        = "internal"
)

// retryAfter is after how many seconds a call that was refused for want of something may come again.
const retryAfter = 1

// Failure is the body of an answer that isn't a success.
type Failure struct {
	status  int
	Success bool   `json:"success" enum:"false" doc:"Always false."`
	Detail  Detail `json:"error"`
}

// Detail is what went wrong.
type Detail struct {
	Code    string `json:"code" doc:"A word for programs: invalid, unauthenticated, forbidden, not_found, method_not_allowed, timeout, conflict, too_large, unsupported_media_type, too_many_requests, refused, unavailable, no_server or internal."`
	Field   string `json:"field,omitempty" doc:"The field that is wrong, such as body.ram_gb or path.id."`
	Message string `json:"message" doc:"A sentence for people that says what to change."`
}

// Error is the message.
func (f *Failure) Error() string { return f.Detail.Message }

// GetStatus is the HTTP status.
func (f *Failure) GetStatus() int { return f.status }

// huma asks this package variable for every error that it finds itself.
func init() {
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return newFailure(status, message, errs...)
	}
}

var codes = map[int]string{
	http.StatusBadRequest: codeInvalid, http.StatusUnauthorized: codeUnauthenticated, http.StatusForbidden: codeForbidden,
	http.StatusNotFound: codeNotFound, http.StatusMethodNotAllowed: codeNotAllowed, http.StatusRequestTimeout: codeTimeout,
	http.StatusConflict: codeConflict, http.StatusRequestEntityTooLarge: codeTooLarge, http.StatusUnsupportedMediaType: codeMediaType,
	http.StatusTooManyRequests: codeTooMany, http.StatusUnprocessableEntity: codeRefused, http.StatusServiceUnavailable: codeUnavailable,
}

// brokenOff is what huma says of a body that it couldn't read to its end, with status 500.
const brokenOff = "cannot read request body"

// newFailure is the answer to an error that huma found: a request that isn't as the document says.
func newFailure(status int, message string, errs ...error) *Failure {
	if status == http.StatusInternalServerError && message == brokenOff {
		return fail(http.StatusBadRequest, "body", "The body broke off: send it whole.")
	}
	f := &Failure{status: status}
	var words []string
	for _, err := range errs {
		var d *huma.ErrorDetail
		if !errors.As(err, &d) {
			words = append(words, err.Error())
			continue
		}
		if f.Detail.Field == "" {
			f.Detail.Field = d.Location
		}
		words = append(words, strings.TrimSpace(d.Location+": "+d.Message))
	}
	if len(words) > 0 && status == http.StatusUnprocessableEntity {
		f.status = http.StatusBadRequest
	}
	if len(words) > 0 && status < http.StatusInternalServerError {
		message = strings.Join(words, "; ")
	}
	f.Detail.Code, f.Detail.Message = codeOf(f.status), message
	return f
}

func codeOf(status int) string {
	if code, ok := codes[status]; ok {
		return code
	}
	if status < http.StatusInternalServerError {
		return codeInvalid
	}
	return codeInternal
}

func fail(status int, field, message string) *Failure {
	return &Failure{status: status, Detail: Detail{Code: codeOf(status), Field: field, Message: message}}
}

// answerTo is the answer to an error of a call.
func answerTo(ctx context.Context, err error) error {
	var own *hosting.Error
	var ofGame *gamecalls.Error
	var f *Failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return f
	case errors.As(err, &own) && own.Kind == hosting.Busy:
		return later(fail(http.StatusServiceUnavailable, "", sentence(own.Message)))
	case errors.As(err, &own):
		return ownError(own)
	case errors.As(err, &ofGame):
		return processError(ofGame)
	case errors.Is(err, access.ErrUnauthenticated):
		return huma.ErrorWithHeaders(fail(http.StatusUnauthorized, "", "A valid bearer token is needed: Authorization: Bearer TOKEN. kubectl create token makes one."), http.Header{"WWW-Authenticate": {"Bearer"}})
	case errors.Is(err, access.ErrForbidden):
		return fail(http.StatusForbidden, "", sentence(err.Error()))
	case errors.Is(err, access.ErrBusy):
		return later(fail(http.StatusTooManyRequests, "", "Too many unknown tokens were shown: try again in a second."))
	case errors.Is(err, context.Canceled):
		// Its caller is gone, or the program ends.
		return later(fail(http.StatusServiceUnavailable, "", "This replica of the API ends, so nothing is sure to have changed: send the same request again."))
	case unavailable(err):
		// Whoever runs the cluster learns of it here alone, and it may last. A caller who is gone says
		// nothing of the cluster.
		if !errors.Is(ctx.Err(), context.Canceled) {
			logr.FromContextOrDiscard(ctx).Error(err, "Kubernetes didn't do what a call asked for")
		}
		return later(fail(http.StatusServiceUnavailable, "", unavailability(err)))
	case apierrors.IsConflict(err):
		return later(fail(http.StatusServiceUnavailable, "", "Somebody else changed the server at the same time: send the same request again."))
	case refusal.Is(err), apierrors.HasStatusCause(err, "NamespaceTerminating"):
		return fail(http.StatusUnprocessableEntity, "", "Kubernetes refused the change: "+refusal.Words(err))
	}
	logr.FromContextOrDiscard(ctx).Error(err, "A call failed")
	return fail(http.StatusInternalServerError, "", "Something went wrong that isn't yours to change: the log of the API says what.")
}

func ownError(e *hosting.Error) error {
	status := map[hosting.Kind]int{
		hosting.NotFound: http.StatusNotFound, hosting.Conflict: http.StatusConflict, hosting.Invalid: http.StatusBadRequest,
	}[e.Kind]
	field := e.Field
	switch field {
	case "":
	case "id", "port":
		field = "path." + field
	default:
		field = "body." + field
	}
	return fail(status, field, sentence(e.Message))
}

// later has the caller come again.
func later(f *Failure) error {
	return huma.ErrorWithHeaders(f, http.Header{"Retry-After": {strconv.Itoa(retryAfter)}})
}

// sentence begins with a capital and ends with a full stop.
func sentence(s string) string {
	if s == "" {
		return s
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// unavailability says what is known of why the API server didn't do what it was asked for.
func unavailability(err error) string {
	// Who isn't known, or has no right, reads nothing of how the cluster is made.
	if (apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err)) && !errors.Is(err, access.ErrUnasked) {
		return "Kubernetes failed, so nothing is sure to have changed: send the same request again, and if that doesn't help show this to its administrator: " + text.Excerpt(refusal.Words(err))
	}
	return "Kubernetes doesn't answer now, so nothing is sure to have changed: send the same request again."
}

// unavailable reports whether an error is the API server's absence, or a failure of its own.
func unavailable(err error) bool {
	var toServer *url.Error
	var network net.Error
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err) ||
		errors.As(err, &toServer) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err)
}
