package scalewebhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"dormouse.dev/dormouse/operator/internal/text"
)

const (
	// maxBody bounds an answer, in bytes.
	maxBody = 64 << 10
	// maxErrorBody is what is read of an answer that is an error anyway, in bytes.
	maxErrorBody = 1 << 10
)

// errTimeout is the cause of a question's context that ends by its timeout.
var errTimeout = errors.New("the webhook's timeout is over")

// exchange asks one question. It takes no longer than timeout.
func exchange(ctx context.Context, transport http.RoundTripper, to target, format Format, timeout time.Duration, r Review) (Answer, error) {
	uid := string(uuid.NewUUID())
	body, err := encode(format, r, uid)
	if err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	request, err := newRequest(ctx, to, body)
	if err != nil {
		return Answer{}, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return Answer{}, classify(ctx, err, to, timeout, "didn't answer")
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return Answer{}, badStatus(response, to)
	}
	if response.ContentLength > maxBody {
		return Answer{}, tooLarge(to)
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return Answer{}, classify(ctx, err, to, timeout, "began to answer, but wasn't done")
	}
	if len(answer) > maxBody {
		return Answer{}, tooLarge(to)
	}
	a, err := parse(format, answer, uid)
	if e, ok := errors.AsType[*Error](err); ok {
		return Answer{}, failure(e.Reason, "%s can't be used. %s", to.name, e.Message)
	}
	return a, err
}

func newRequest(ctx context.Context, to target, body []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, failure(BadEndpoint, "The webhook's address can't be asked: %s", text.Plain(err.Error(), maxInner))
	}
	if to.host != "" {
		request.Host = net.JoinHostPort(to.host, to.url.Port())
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "dormouse")
	// Asking twice changes nothing. With this header, which isn't sent, the transport asks
	// anew where the webhook closed a kept connection at that very time.
	request.Header["Idempotency-Key"] = nil
	return request, nil
}

func tooLarge(to target) *Error {
	return failure(BadAnswer, "The answer of %s is larger than %d KiB: it must be one small JSON object", to.name, maxBody>>10)
}

// badStatus describes an answer that isn't 200.
func badStatus(response *http.Response, to target) *Error {
	code := response.StatusCode
	status := fmt.Sprintf("%d %s", code, http.StatusText(code))
	switch {
	case code == http.StatusSwitchingProtocols:
		// What follows is a connection of its own, which no context ends: it isn't read.
		return failure(BadStatus, "%s answers %s, which nobody asked for", to.name, status)
	case code >= 300 && code < 400:
		return failure(BadStatus, "%s answers %s: redirects aren't followed, so name the address that it leads to", to.name, status)
	}
	// It is quoted as far as it came.
	begin, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if quoted := text.Plain(string(begin), maxQuoted); quoted != "" {
		return failure(BadStatus, "%s answers %s instead of 200: %s", to.name, status, strconv.Quote(quoted))
	}
	return failure(BadStatus, "%s answers %s instead of 200", to.name, status)
}
