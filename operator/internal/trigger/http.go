package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/go-openapi/jsonpointer"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/outbound"
	"dormouse.dev/dormouse/operator/internal/triggerauth"
)

const (
	maxBody = 64 << 10
	timeout = 2 * time.Second
	// dialTime is how much of that a connection may take. A lost SYN is repeated after a second.
	dialTime = 1500 * time.Millisecond
)

// dialPod dials a pod of the target.
var dialPod = (&net.Dialer{Timeout: dialTime}).DialContext

// askPod asks one of a target's pods, over connections of its namespace. Its app may listen in one address family
// alone. Where no address takes a connection, the error is that of the first.
func (p *Poller) askPod(ctx context.Context, namespace string, pod []string, t *v1alpha1.HTTPTrigger, access triggerauth.Access) (float64, error) {
	transport, err := p.transports.Get(namespace, access.Trust, dialPod)
	if err != nil {
		return 0, err //nolint:wrapcheck // it is a sentence
	}
	client := &http.Client{
		Timeout: timeout,
		// A pod must not redirect the operator elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     transport,
	}
	scheme := "http"
	if t.TLS != nil {
		scheme = "https"
	}
	var first error
	for _, address := range pod {
		url := scheme + "://" + net.JoinHostPort(address, strconv.Itoa(int(t.Port))) + t.Path
		number, connected, err := ask(ctx, client, url, t.JSONPointer, access.Header)
		if connected {
			return number, err
		}
		if first == nil {
			first = err
		}
	}
	return 0, first
}

// ask asks a URL for a number, and reports whether there was a connection.
func ask(ctx context.Context, client *http.Client, url, pointer string, header http.Header) (number float64, connected bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, false, fmt.Errorf("build the request for %s: %w", url, err)
	}
	maps.Copy(req.Header, header)
	res, err := client.Do(req)
	if err != nil {
		why := outbound.Classify(err, url)
		op, _ := errors.AsType[*net.OpError](err)
		return 0, op == nil || op.Op != "dial", outbound.Failure(why.Reason, "ask the pod: %s", why.Message)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, true, outbound.Failure(outbound.BadStatus, "GET %s answered %s, want 200", url, res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	if err != nil {
		why := outbound.Classify(err, url)
		return 0, true, outbound.Failure(why.Reason, "read the pod's answer: %s", why.Message)
	}
	if len(body) > maxBody {
		return 0, true, outbound.Failure(outbound.BadAnswer, "GET %s answered more than %d bytes", url, maxBody)
	}
	n, err := parseNumber(body, pointer)
	if err != nil {
		return 0, true, outbound.Failure(outbound.BadAnswer, "GET %s: %v", url, err)
	}
	return n, true, nil
}

// parseNumber finds the number at a JSON pointer.
func parseNumber(body []byte, pointer string) (float64, error) {
	var doc any
	if err := json.Unmarshal(body, &doc); err != nil {
		return 0, fmt.Errorf("the answer is not JSON: %w", err)
	}
	p, err := jsonpointer.New(pointer)
	if err != nil {
		return 0, fmt.Errorf("jsonPointer %q: %w", pointer, err)
	}
	value, _, err := p.Get(doc)
	if err != nil {
		return 0, fmt.Errorf("the answer has nothing at %q: %w", pointer, err)
	}
	n, ok := value.(float64)
	if !ok {
		return 0, fmt.Errorf("the answer has no number at %q but a %T", pointer, value)
	}
	if n < 0 {
		return 0, fmt.Errorf("the answer has a negative number at %q: %v", pointer, n) // it would hide other pods' numbers
	}
	return n, nil
}
