// Package informer is the operator's wake endpoint. It runs on every replica, leader or not,
// and keeps nothing that isn't in the cluster: its memory of recent wakes only saves API calls.
package informer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/valyala/fasthttp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/json"

	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/serviceauth"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/target"
)

// MaxBody bounds a wake call's body. Two names of 63 characters and a number fit
// many times over.
const MaxBody = 4 << 10

// answerTime bounds the work for one call, below the second after which a
// resolver gives up and calls again.
const answerTime = 900 * time.Millisecond

// errNotReady means that the caller did nothing wrong and this replica isn't ready yet.
var errNotReady = errors.New("try again")

// Verifier verifies a service account token.
type Verifier interface {
	Verify(ctx context.Context, token string) (serviceauth.Identity, error)
}

// Handler answers wake calls.
type Handler struct {
	// Verifier verifies the caller's token.
	Verifier Verifier
	// Pods has the resolver pods, possibly among others.
	Pods client.Reader
	// Selector selects the resolver pods.
	Selector labels.Selector
	// Resolver is the namespace and name of the resolvers' service account.
	Resolver types.NamespacedName
	// Waker wakes services.
	Waker *Waker
	// Metrics counts; nil: nothing is counted.
	Metrics *metrics.Informer
	// Log takes errors that a caller can't fix.
	Log logr.Logger
}

// Register registers the endpoint with a server.
func (h *Handler) Register(s *httpserver.Server) {
	s.Handle(fasthttp.MethodPost, informerapi.WakePath, h.serve)
}

func (h *Handler) serve(rc *fasthttp.RequestCtx) {
	started := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	// Each step is for a call that passed those before it.
	var request informerapi.WakeRequest
	var answer informerapi.WakeResponse
	var malformed, failed error
	denied := h.authenticate(ctx, rc)
	if denied == nil {
		request, malformed = parse(rc.PostBody())
	}
	if denied == nil && malformed == nil {
		request.Async = bytes.EqualFold(rc.Request.Header.Peek(informerapi.PreferHeader), []byte(informerapi.RespondAsync))
		answer, failed = h.Waker.Wake(ctx, request)
	}
	switch {
	case errors.Is(denied, serviceauth.ErrKeysUnavailable), errors.Is(denied, errNotReady):
		unavailable(rc, denied)
	case denied != nil:
		rc.Response.Header.Set("WWW-Authenticate", "Bearer")
		httpserver.Error(&rc.Response, fasthttp.StatusUnauthorized, denied.Error())
	case malformed != nil:
		httpserver.Error(&rc.Response, fasthttp.StatusBadRequest, malformed.Error())
	case failed == nil:
		httpserver.JSON(&rc.Response, fasthttp.StatusAccepted, answer)
	case errors.Is(failed, ErrUnknownService), errors.Is(failed, ErrTargetTaken), errors.Is(failed, ErrNeverWakes), errors.Is(failed, ErrKeptAsleep), errors.Is(failed, target.ErrNotFound), errors.Is(failed, target.ErrNotScalable), errors.Is(failed, target.ErrClusterScoped):
		// There is nothing that a client can wake: resolvers soon refuse the clients. The ElasticService's
		// conditions explain it to its owner.
		httpserver.Error(&rc.Response, fasthttp.StatusNotFound, failed.Error())
	case errors.Is(failed, ErrAgain):
		// That is no error: there are many wakes, or the API server is busy. What fails in the end is told to
		// one of the later calls.
		unavailable(rc, errors.New("there are many wakes, or the API server is too slow: try again"))
	case errors.Is(failed, target.ErrForbidden):
		// An API server that has just started may answer that for a while.
		unavailable(rc, failed)
	default:
		h.Log.Error(failed, "wake", "namespace", request.Namespace, "service", request.Svc)
		unavailable(rc, errors.New("the API server can't be reached or is too slow: try again"))
	}
	h.Metrics.Answered(strconv.Itoa(rc.Response.StatusCode()), time.Since(started))
}

// authenticate checks that the caller is a live resolver pod.
func (h *Handler) authenticate(ctx context.Context, rc *fasthttp.RequestCtx) error {
	token, err := serviceauth.BearerToken(rc.Request.Header.Peek(fasthttp.HeaderAuthorization))
	if err != nil {
		return err
	}
	id, err := h.Verifier.Verify(ctx, token)
	if err != nil {
		return err
	}
	if id.Namespace != h.Resolver.Namespace || id.ServiceAccount != h.Resolver.Name {
		return fmt.Errorf("the token is of service account %s: only that of the resolver, %s, may wake", id.Account(), h.Resolver)
	}
	pod := &corev1.Pod{}
	// It is only read.
	err = h.Pods.Get(ctx, types.NamespacedName{Namespace: id.Namespace, Name: id.PodName}, pod, client.UnsafeDisableDeepCopy)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: the cache of resolver pods can't be read: %w", errNotReady, err)
	}
	if err != nil || string(pod.UID) != id.PodUID || !h.Selector.Matches(labels.Set(pod.Labels)) || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return errors.New("the token is of a resolver pod that is gone")
	}
	return nil
}

func unavailable(rc *fasthttp.RequestCtx, err error) {
	rc.Response.Header.Set(fasthttp.HeaderRetryAfter, "1")
	httpserver.Error(&rc.Response, fasthttp.StatusServiceUnavailable, err.Error())
}

// parse parses a wake call's body, which must be exactly one. Unknown fields of a newer
// resolver are ignored.
func parse(body []byte) (informerapi.WakeRequest, error) {
	var r informerapi.WakeRequest
	const like = `the body must be one JSON object like {"count":1,"svc":"lobby","namespace":"games"}: %w`
	strict, err := json.UnmarshalStrict(body, &r, json.DisallowDuplicateFields)
	if err := errors.Join(append(strict, err)...); err != nil {
		return r, fmt.Errorf(like, err)
	}
	if r.Count < 1 || r.Count > informerapi.MaxWakeCount {
		return r, fmt.Errorf("count is %d: it must be from 1 to %d", r.Count, informerapi.MaxWakeCount)
	}
	if problems := validation.IsDNS1035Label(r.Svc); len(problems) > 0 {
		return r, fmt.Errorf("svc must be the name of a Service: %s", problems[0])
	}
	if problems := validation.IsDNS1123Label(r.Namespace); len(problems) > 0 {
		return r, fmt.Errorf("namespace must be the name of a namespace: %s", problems[0])
	}
	return r, nil
}
