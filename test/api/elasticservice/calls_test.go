package elasticservice_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/test/api/fixture"
)

// callTimeout is the second after which a resolver gives up, and what a machine
// that builds needs besides.
const callTimeout = 10 * time.Second

// caller keeps a connection for each call under way, as resolvers do.
var caller = &http.Client{
	Timeout:   callTimeout,
	Transport: &http.Transport{MaxIdleConnsPerHost: 256},
}

// answer is what a wake call got.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// sentence is an error answer's.
func (a answer) sentence(t *testing.T) string {
	t.Helper()
	var e informerapi.ErrorResponse
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil || e.Error == "" {
		t.Fatalf("the answer %d %q is not an ErrorResponse: %v", a.code, a.body, err)
	}
	return e.Error
}

// call calls an operator with any method, path, token and body.
func call(t *testing.T, replica int, method, path, token string, body []byte) (answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+cluster.operators[replica].Address+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := caller.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	return answer{code: res.StatusCode, header: res.Header, body: got}, err
}

// resolverToken is the token of one of the resolver pods.
func resolverToken(t *testing.T) string {
	t.Helper()
	token, err := fixture.Token(t.Context(), cluster.client, fixture.SystemNamespace, resolverAccount, wellknown.TokenAudience, cluster.resolvers.members[0].pod)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// wake makes a good wake call and returns the answer, which must be 202.
func (w *world) wake(replica int, token, service string) informerapi.WakeResponse {
	w.t.Helper()
	response, err := w.tryWake(replica, token, service)
	if err != nil {
		w.t.Fatal(err)
	}
	return response
}

// tryWake makes a good wake call. As resolvers do, it comes again when it is told
// that the API server is too slow.
func (w *world) tryWake(replica int, token, service string) (response informerapi.WakeResponse, err error) {
	body, err := json.Marshal(informerapi.WakeRequest{Count: 1, Svc: service, Namespace: w.ns})
	if err != nil {
		return response, err
	}
	var got answer
	for late := time.Now().Add(callTimeout); ; {
		if got, err = call(w.t, replica, http.MethodPost, informerapi.WakePath, token, body); err != nil {
			return response, fmt.Errorf("call the operator: %w", err)
		}
		if got.code != http.StatusServiceUnavailable || time.Now().After(late) {
			break
		}
	}
	if got.code != http.StatusAccepted {
		return response, fmt.Errorf("the wake call of %s/%s was answered %d %s, want 202", w.ns, service, got.code, got.body)
	}
	if err := json.Unmarshal(got.body, &response); err != nil {
		return response, fmt.Errorf("read the answer %q: %w", got.body, err)
	}
	return response, nil
}
