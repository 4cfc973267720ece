package errortracking

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/getsentry/sentry-go"
)

const (
	// queued bounds the reports that wait to be sent.
	queued = 64
	// sendTimeout bounds the sending of one report.
	sendTimeout = 5 * time.Second
)

// transport sends one report after the other, and counts each one's outcome, which the SDK's
// own transports don't report. Reporting never waits for it.
type transport struct {
	*sentry.HTTPSyncTransport
	count func(outcome string)
	queue chan item

	closing sync.Once
	closed  chan struct{}
	// taken is set where Sentry accepted the report that is being sent. Only the sending
	// goroutine uses it.
	taken bool
}

// item is a report, or a request to be notified when all before it are sent.
type item struct {
	event *sentry.Event
	done  chan struct{}
}

func newTransport(count func(string)) *transport {
	t := &transport{
		HTTPSyncTransport: sentry.NewHTTPSyncTransport(),
		count:             count, queue: make(chan item, queued), closed: make(chan struct{}),
	}
	t.Timeout = sendTimeout
	return t
}

// Configure implements sentry.Transport.
func (t *transport) Configure(o sentry.ClientOptions) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	o.HTTPTransport = roundTrip(func(r *http.Request) (*http.Response, error) {
		res, err := base.RoundTrip(r)
		t.taken = err == nil && res.StatusCode < http.StatusMultipleChoices
		return res, err
	})
	t.HTTPSyncTransport.Configure(o)
	go t.run(base)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (t *transport) run(base *http.Transport) {
	defer base.CloseIdleConnections()
	for {
		select {
		case <-t.closed:
			return
		case i := <-t.queue:
			if i.done != nil {
				close(i.done)
				continue
			}
			t.taken = false
			t.HTTPSyncTransport.SendEvent(i.event)
			if t.taken {
				t.count(sent)
			} else {
				t.count(failed)
			}
		}
	}
}

// SendEvent implements sentry.Transport.
func (t *transport) SendEvent(event *sentry.Event) {
	select {
	case t.queue <- item{event: event}:
	default:
		t.count(dropped)
	}
}

// Flush implements sentry.Transport.
func (t *transport) Flush(timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return t.FlushWithContext(ctx)
}

// FlushWithContext implements sentry.Transport.
func (t *transport) FlushWithContext(ctx context.Context) bool {
	done := make(chan struct{})
	select {
	case t.queue <- item{done: done}:
	case <-ctx.Done():
		return false
	}
	select {
	case <-done:
		return true
	case <-t.closed:
		return false
	case <-ctx.Done():
		return false
	}
}

// Close implements sentry.Transport. Sending the current report may outlast it by sendTimeout.
func (t *transport) Close() { t.closing.Do(func() { close(t.closed) }) }
