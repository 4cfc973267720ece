// Package wake asks the operator to wake services.
//
// It makes one call and returns its result. When to call, and how often, is up to the queue
// that holds the clients.
package wake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/valyala/fasthttp"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/tokenfile"
)

const (
	// Timeout bounds one call.
	Timeout = time.Second
	// warmEvery is how often a kept connection is used, so that the first wake after a long
	// idle time needs no new one. The operator closes idle ones later.
	warmEvery = 30 * time.Second
	// keepIdle is how long an unused connection is kept.
	keepIdle = 100 * time.Second
	// maxAnswer bounds an answer's body.
	maxAnswer = 64 << 10
	// maxConns bounds the connections to the operator: calls for that many services at once.
	// Others wait their turn within their Timeout. The operator scales up all targets that it is
	// called for before it does the rest of the work for any of them.
	maxConns = 512
)

// Outcome is the kind of a call's result. It labels metrics.
type Outcome string

// Outcomes.
const (
	// Accepted means that the operator accepted the call.
	Accepted Outcome = "accepted"
	// NotFound means that there is nothing to wake: the operator knows no such service, or its
	// target doesn't exist or can't be scaled.
	NotFound Outcome = "not_found"
	// Unauthorized means that the operator doesn't trust the token.
	Unauthorized Outcome = "unauthorized"
	// Unavailable means that the operator can't reach the API server.
	Unavailable Outcome = "unavailable"
	// Rejected means that the operator gave another answer.
	Rejected Outcome = "rejected"
	// Malformed means that the answer could not be read.
	Malformed Outcome = "malformed"
	// Unreachable means that no operator answered.
	Unreachable Outcome = "unreachable"
	// TimedOut means that the operator did not answer in time.
	TimedOut Outcome = "timeout"
	// NoToken means that there is no token to call with.
	NoToken Outcome = "no_token"
)

// Result is a call's result.
type Result struct {
	Outcome Outcome
	// Phase is the service's phase after an accepted call.
	Phase v1alpha1.Phase
	// LastSleep is when the service last fell asleep; zero where it never did.
	LastSleep time.Time
	// LastWakeTime is the lastWakeTime that the status is going to have; zero where it had it at the answer.
	LastWakeTime time.Time
	// Err has the details where the outcome is not Accepted.
	Err error
}

// Cancelled reports whether no sleep is under way any more: the service is, or is going to be,
// up, and clients that the call was made for may be connected.
func (r Result) Cancelled() bool {
	return r.Outcome == Accepted && r.Phase != v1alpha1.PhaseAsleep
}

// Client calls the operator.
type Client struct {
	http  *fasthttp.HostClient
	wake  string
	warm  string
	token *tokenfile.File
}

// New makes a client of the operator at an http or https URL.
func New(operator string, token *tokenfile.File) (*Client, error) {
	u, err := url.Parse(operator)
	if err != nil {
		return nil, fmt.Errorf("reading the operator's URL: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, fmt.Errorf("the operator's URL %q must be like http://host:port", operator)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	base := &url.URL{Scheme: u.Scheme, Host: u.Host}
	return &Client{
		http: &fasthttp.HostClient{
			Addr:                net.JoinHostPort(u.Hostname(), port),
			IsTLS:               u.Scheme == "https",
			Name:                "dormouse-resolver",
			Dial:                newDialer().dial,
			MaxConns:            maxConns,
			MaxConnWaitTimeout:  Timeout,
			MaxIdleConnDuration: keepIdle,
			ReadTimeout:         Timeout,
			WriteTimeout:        Timeout,
			MaxResponseBodySize: maxAnswer,
			// A wake may be made twice: a kept connection that the operator has
			// closed meanwhile is noticed only by using it.
			RetryIf: func(*fasthttp.Request) bool { return true },
		},
		wake:  base.JoinPath(informerapi.WakePath).String(),
		warm:  base.JoinPath(httpserver.HealthPath).String(),
		token: token,
	}, nil
}

// Wake calls the operator because count clients wait for a service.
func (c *Client) Wake(_ context.Context, namespace, service string, count int) Result {
	token, err := c.token.Get()
	if err != nil {
		return Result{Outcome: NoToken, Err: err}
	}
	body, err := json.Marshal(informerapi.WakeRequest{
		Count: min(max(count, 1), informerapi.MaxWakeCount), Svc: service, Namespace: namespace,
	})
	if err != nil {
		return Result{Outcome: Malformed, Err: fmt.Errorf("writing the wake call: %w", err)}
	}
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.SetRequestURI(c.wake)
	req.Header.SetContentType("application/json")
	req.Header.Set(fasthttp.HeaderAuthorization, "Bearer "+token)
	req.Header.Set(informerapi.PreferHeader, informerapi.RespondAsync)
	req.SetBody(body)
	if err := c.http.DoTimeout(req, resp, Timeout); err != nil {
		outcome := Unreachable
		var network net.Error
		if errors.Is(err, fasthttp.ErrTimeout) || (errors.As(err, &network) && network.Timeout()) {
			outcome = TimedOut
		}
		return Result{Outcome: outcome, Err: fmt.Errorf("calling the operator: %w", err)}
	}
	return parseAnswer(resp.StatusCode(), resp.Body())
}

// Start keeps a connection warm until the context ends.
func (c *Client) Start(ctx context.Context) error {
	ticker := time.NewTicker(warmEvery)
	defer ticker.Stop()
	defer c.http.CloseIdleConnections()
	for {
		c.touch()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// touch uses a connection. A failure matters only when a call is needed.
func (c *Client) touch() {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(c.warm)
	_ = c.http.DoTimeout(req, resp, Timeout)
}
