package promquery

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"time"

	promclient "github.com/prometheus/client_golang/api"
	promapi "github.com/prometheus/client_golang/api/prometheus/v1"
	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/fair"
	"dormouse.dev/dormouse/operator/internal/outbound"
	"dormouse.dev/dormouse/operator/internal/recent"
	"dormouse.dev/dormouse/operator/internal/text"
	"dormouse.dev/dormouse/operator/internal/triggerauth"
)

const (
	// FreshFor is for how long an answer is used. Prometheus itself learns of anything at its
	// next scrape, which is seldom sooner.
	FreshFor = 15 * time.Second
	// queryTime bounds a query, from its connection to its answer's last byte. It is shorter than
	// the age that an answer may have when a service is put to sleep.
	queryTime = 3 * time.Second
	// serverTime is how long the server may work on it: whole seconds, because Prometheus takes
	// no fractions of them.
	serverTime = queryTime - time.Second
	// turnTime bounds how long a query waits for its turn.
	turnTime = 30 * time.Second
	// maxBody bounds an answer, in bytes.
	maxBody = 256 << 10
)

// Bounds of the queries that are asked at once: of all, of a namespace, at a server, and of a
// namespace at a server. A Prometheus answers 20 at once by default.
const (
	maxAtOnce            = 1024
	maxOfNamespace       = 32
	maxAtServer          = 20
	maxOfNamespaceServer = 8
	// unbounded stands for what other bounds hold.
	unbounded = 1 << 30
)

// Options are what a Client needs.
type Options struct {
	// Addresses are those that may be dialled.
	Addresses outbound.Addresses
	// Services finds a Service; nil: there is none.
	Services func(ctx context.Context, namespace, name string) (*corev1.Service, error)
	// Secrets reads what is shown to servers.
	Secrets *triggerauth.Reader
}

// Client asks Prometheus servers.
type Client struct {
	options    Options
	transports outbound.Transports
	answers    recent.Answers[[32]byte, Answer]
	// all, atServer and ofBoth are turns by namespace, server, and both.
	all, atServer, ofBoth *fair.Permits
}

// New makes a Client.
func New(options Options) *Client {
	return &Client{
		options:  options,
		answers:  recent.Answers[[32]byte, Answer]{Keep: 2 * FreshFor},
		all:      fair.New(maxAtOnce, maxOfNamespace),
		atServer: fair.New(unbounded, maxAtServer),
		ofBoth:   fair.New(unbounded, maxOfNamespaceServer),
	}
}

// Query is a question.
type Query struct {
	Namespace string
	// Server is a PrometheusTrigger's serverAddress.
	Server string
	TLS    *v1alpha1.TriggerTLS
	Auth   *v1alpha1.TriggerAuth
	PromQL string
}

// Answer is what a query results in.
type Answer struct {
	Number float64
	// At is when the server was asked, after the query had waited for its turn.
	At time.Time
}

// Ask returns what a query results in. The answer is one to a question that was begun
// at a time or later. Errors are an *outbound.Error or the context's.
func (c *Client) Ask(ctx context.Context, q Query, since time.Time) (Answer, error) {
	u, err := parse(q.Server)
	if err != nil {
		return Answer{}, err
	}
	access, err := c.options.Secrets.Access(ctx, triggerauth.Request{Namespace: q.Namespace, Server: u, TLS: q.TLS, Auth: q.Auth})
	if err != nil {
		return Answer{}, err //nolint:wrapcheck // it is a sentence
	}
	shown := access.Digest()
	key := outbound.Digest([]byte(q.Namespace), []byte(q.Server), []byte(q.PromQL), shown[:])
	return c.answers.Get(ctx, key, since, func(ctx context.Context) (Answer, error) {
		return c.ask(ctx, q, u, access)
	})
}

func (c *Client) ask(ctx context.Context, q Query, u *url.URL, access triggerauth.Access) (Answer, error) {
	server := text.Plain(u.Scheme+"://"+u.Host, outbound.MaxQuoted)
	to, err := c.find(ctx, q.Namespace, u)
	if err != nil {
		return Answer{}, err
	}
	user := q.Namespace + " " + u.Scheme + "://" + u.Host + " " + to.clusterIP
	address := cmp.Or(to.clusterIP, addressOf(u))
	transport, err := c.transports.Get(user, access.Trust, to.dial(c.options.Addresses))
	if err != nil {
		return Answer{}, err //nolint:wrapcheck // it is a sentence
	}
	release, err := c.turn(ctx, q.Namespace, address)
	if err != nil {
		return Answer{}, outbound.Failure(outbound.Timeout, "%s has too many queries to answer, so this one's turn didn't come within %s", server, turnTime)
	}
	defer release()
	at := time.Now()
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	api, err := promclient.NewClient(promclient.Config{Address: q.Server, Client: &http.Client{
		Transport:     &roundTripper{next: transport, header: access.Header},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
	if err != nil {
		return Answer{}, outbound.Failure(outbound.NotAllowed, "serverAddress is no URL: correct it")
	}
	result, warnings, _, err := promapi.NewAPI(api).Query(ctx, q.PromQL, time.Time{}, promapi.WithTimeout(serverTime))
	if err != nil {
		return Answer{}, classify(err, server)
	}
	n, err := number(result, warnings)
	if err != nil {
		return Answer{}, outbound.Classify(err, server)
	}
	return Answer{Number: n, At: at}, nil
}

// turn waits until a query may be asked. First for a namespace at a server, so that those who
// wait for a slow one take no place of others.
func (c *Client) turn(ctx context.Context, namespace, server string) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	both := namespace + " " + server
	if err := c.ofBoth.Acquire(ctx, both); err != nil {
		return nil, err
	}
	if err := c.atServer.Acquire(ctx, server); err != nil {
		c.ofBoth.Release(both)
		return nil, err
	}
	if err := c.all.Acquire(ctx, namespace); err != nil {
		c.atServer.Release(server)
		c.ofBoth.Release(both)
		return nil, err
	}
	return func() {
		c.all.Release(namespace)
		c.atServer.Release(server)
		c.ofBoth.Release(both)
	}, nil
}

// roundTripper shows what is to be shown, and bounds answers.
type roundTripper struct {
	next   http.RoundTripper
	header http.Header
}

// RoundTrip implements http.RoundTripper.
func (r *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	maps.Copy(request.Header, r.header)
	request.Header.Set("User-Agent", "dormouse")
	response, err := r.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if refused := refuse(response); refused != nil {
		defer response.Body.Close()
		return nil, refused
	}
	response.Body = outbound.Bounded(response.Body, maxBody, "aggregate the query's result, with sum() for example")
	return response, nil
}

// refuse says why an answer isn't read; nil: it is.
func refuse(response *http.Response) error {
	code := response.StatusCode
	switch {
	case code == http.StatusSwitchingProtocols:
		// What follows is a connection of its own, which no context ends.
		return outbound.Failure(outbound.BadStatus, "It answers %s, which nobody asked for", response.Status)
	case code == http.StatusUnauthorized:
		return outbound.Failure(outbound.BadStatus, "It answers 401: correct auth, or what its Secret has")
	case code >= 300 && code < 400:
		return outbound.Failure(outbound.BadStatus, "It answers %d, and redirects are not followed: correct serverAddress", code)
	}
	return nil
}

// classify says why a query has no result.
func classify(err error, server string) error {
	e, ok := errors.AsType[*promapi.Error](err)
	if !ok {
		return outbound.Classify(err, server)
	}
	said := text.Plain(e.Msg, outbound.MaxQuoted)
	switch e.Type {
	case promapi.ErrBadData:
		return outbound.Failure(outbound.BadAnswer, "%s refuses the query, which must be PromQL: %s", server, said)
	case promapi.ErrTimeout, promapi.ErrCanceled:
		return outbound.Failure(outbound.Timeout, "%s didn't have the query's result in time: make it simpler, with a recording rule for example (%s)", server, said)
	case promapi.ErrExec:
		return outbound.Failure(outbound.BadAnswer, "%s can't execute the query: %s", server, said)
	case promapi.ErrBadResponse:
		return outbound.Failure(outbound.BadAnswer, "%s doesn't answer as Prometheus does: is serverAddress its address, with the path before /api/v1? (%s)", server, said)
	case promapi.ErrServer:
		return outbound.Failure(outbound.BadStatus, "%s answers with an error (%s): does it work, and is the query simple enough?", server, said)
	case promapi.ErrClient:
	}
	return outbound.Failure(outbound.BadStatus, "%s answers with an error: %s", server, said)
}
