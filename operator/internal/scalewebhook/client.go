package scalewebhook

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"dormouse.dev/dormouse/operator/internal/fair"
	"dormouse.dev/dormouse/operator/internal/outbound"
)

const (
	// inFlight is how many questions are asked at once, perNamespace how many of a
	// namespace and perEndpoint how many of one endpoint. Each takes some 100 KiB at most.
	inFlight     = 1024
	perNamespace = 64
	perEndpoint  = 16
	// maxEndpoints is how many endpoints are remembered, with two idle connections each at most,
	// and namespaceEndpoints how many of a namespace. freeEndpoints of each there may be beside
	// that, while they are asked: some namespaces full of slow ones keep nobody else's out.
	maxEndpoints       = 1024
	namespaceEndpoints = 128
	freeEndpoints      = 8
)

// Options are what a Client needs.
type Options struct {
	// Services returns a Service from the operator's cache, nil if there is none. An error is told
	// to the user. Without the function there are no Services.
	Services func(ctx context.Context, namespace, name string) (*corev1.Service, error)
	// MayUse reports whether autoscalers of another namespace may ask a Service. Without it none
	// may.
	MayUse func(svc *corev1.Service, namespace string) bool
	// Addresses are those that may be dialled.
	Addresses outbound.Addresses
	// Done is called for each answer or failure of a question that Poll asked, from a goroutine of the
	// question's own: whoever polls may look at the result. It may block, and not for long.
	Done func(Subject)
	// Clock is time.Now if nil. Timeouts are always real.
	Clock clock.PassiveClock
}

// Client asks webhooks. There is one for the whole operator: its bounds are for all. It is safe
// for use by many at once.
type Client struct {
	options   Options
	clock     clock.PassiveClock
	endpoints *endpoints
	// ofEndpoint and ofNamespace bound the questions that are asked at once. Those who wait take turns.
	ofEndpoint, ofNamespace *fair.Permits

	// ctx ends with the client, and with it all questions of Poll.
	ctx  context.Context
	stop context.CancelFunc

	mu    sync.Mutex
	polls map[Subject]*poll
	// subjects are those of polls, by their GameAutoscaler.
	subjects map[types.NamespacedName][]Subject
	swept    time.Time
	closed   bool
	wait     sync.WaitGroup
}

// New makes a client. Start or Close must be called.
func New(options Options) *Client {
	c := &Client{
		options:     options,
		clock:       options.Clock,
		endpoints:   newEndpoints(maxEndpoints, namespaceEndpoints, freeEndpoints),
		ofEndpoint:  fair.New(math.MaxInt, perEndpoint),
		ofNamespace: fair.New(inFlight, perNamespace),
		polls:       map[Subject]*poll{},
		subjects:    map[types.NamespacedName][]Subject{},
	}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Ask asks once, and waits for the answer or the endpoint's timeout. Before that it
// waits for its turn where many are asked. The error is an *Error.
func (c *Client) Ask(ctx context.Context, e Endpoint, r Review) (Answer, error) {
	to, err := c.lookup(ctx, r.Namespace, e)
	if err != nil {
		return Answer{}, err
	}
	state, err := c.endpoints.acquire(c.clock.Now(), keyOf(r.Namespace, e), func() (*http.Transport, error) {
		authorities, err := e.authorities()
		if err != nil {
			return nil, err
		}
		return newTransport(c.options.Addresses, to.host, authorities, e.timeout()), nil
	})
	if err != nil {
		return Answer{}, err
	}
	defer func() { c.endpoints.release(c.clock.Now(), state) }()
	if open := state.circuit.state(c.clock.Now()); open != nil {
		return Answer{}, open
	}
	release, err := c.turn(ctx, state)
	if err != nil {
		return Answer{}, err
	}
	defer release()
	// Others may have failed meanwhile.
	pass, open := state.circuit.begin(c.clock.Now())
	if open != nil {
		return Answer{}, open
	}
	answer, err := exchange(ctx, state.transport, to, e.Format, e.timeout(), r)
	return answer, pass.end(c.clock.Now(), err)
}

// turn waits until a question may be asked. First for the endpoint, so that those who
// wait for a slow one take no place of their namespace's.
func (c *Client) turn(ctx context.Context, s *endpointState) (release func(), err error) {
	namespace := s.key.namespace
	if err := c.ofEndpoint.Acquire(ctx, s.id); err != nil {
		return nil, cancelled(err)
	}
	if err := c.ofNamespace.Acquire(ctx, namespace); err != nil {
		c.ofEndpoint.Release(s.id)
		return nil, cancelled(err)
	}
	return func() {
		c.ofNamespace.Release(namespace)
		c.ofEndpoint.Release(s.id)
	}, nil
}

func cancelled(cause error) *Error {
	return &Error{Reason: Cancelled, Message: "The question was ended before there was an answer", cause: cause}
}

// Start blocks until ctx ends, and closes the client then. It makes a manager.Runnable of it.
func (c *Client) Start(ctx context.Context) error {
	<-ctx.Done()
	c.Close()
	return nil
}

// NeedLeaderElection is as for the controllers: who isn't the leader doesn't ask.
func (*Client) NeedLeaderElection() bool { return true }

// Close ends all questions that Poll asked, and waits for their goroutines.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.wait.Wait()
	c.endpoints.close()
}

var errClosed = errors.New("the client is closed")
