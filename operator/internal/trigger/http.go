package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/go-openapi/jsonpointer"

	"dormouse.dev/dormouse/api/v1alpha1"
)

const (
	maxBody = 64 << 10
	timeout = 2 * time.Second
)

var httpClient = &http.Client{
	Timeout: timeout,
	// A pod must not redirect the operator elsewhere.
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport: &http.Transport{
		Proxy:               nil,
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     2 * MaxInterval,
	},
}

func askPod(ctx context.Context, pod string, asked v1alpha1.Trigger) (n float64, err error) {
	t := asked.HTTP
	url := "http://" + net.JoinHostPort(pod, strconv.Itoa(int(t.Port))) + t.Path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, fmt.Errorf("build the request for %s: %w", url, err)
	}
	res, err := httpClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("ask the pod: %w", err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("GET %s answered %s, want 200", url, res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	if err != nil {
		return 0, fmt.Errorf("read the answer of %s: %w", url, err)
	}
	if len(body) > maxBody {
		return 0, fmt.Errorf("GET %s answered more than %d bytes", url, maxBody)
	}
	n, err = parseNumber(body, t.JSONPointer)
	if err != nil {
		return 0, fmt.Errorf("GET %s: %w", url, err)
	}
	return n, nil
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
