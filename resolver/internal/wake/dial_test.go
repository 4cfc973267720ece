package wake

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"
)

// An operator by a name that the test tells.
func named(t *testing.T, c *Client, lookup func(context.Context, string) ([]netip.Addr, error)) {
	t.Helper()
	c.http.Dial = (&dialer{lookup: lookup}).dial
}

func TestTheOperatorIsReachedWhenItsNameIsNoLongerTold(t *testing.T) {
	operator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte(`{"phase":"Waking"}`))
	}))
	defer operator.Close()
	_, port, err := net.SplitHostPort(operator.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, "http://dormouse-operator.test:"+port)
	silent := false
	named(t, c, func(ctx context.Context, host string) ([]netip.Addr, error) {
		if host != "dormouse-operator.test" {
			t.Errorf("%q was looked up, want the operator's name", host)
		}
		if silent {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	})
	if got := c.Wake(t.Context(), "games", "lobby", 1); got.Outcome != Accepted {
		t.Fatalf("outcome = %v (%v), want %v", got.Outcome, got.Err, Accepted)
	}
	silent = true
	if got := c.Wake(t.Context(), "games", "lobby", 1); got.Outcome != Accepted {
		t.Errorf("with a silent DNS: outcome = %v (%v), want %v", got.Outcome, got.Err, Accepted)
	}
}

func TestANameThatWasNeverToldIsAnErrorInTime(t *testing.T) {
	c := newClient(t, "http://dormouse-operator.test:80")
	named(t, c, func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no such host") })
	began := time.Now()
	if got := c.Wake(t.Context(), "games", "lobby", 1); got.Outcome != Unreachable {
		t.Errorf("outcome = %v (%v), want %v", got.Outcome, got.Err, Unreachable)
	}
	if took := time.Since(began); took > Timeout {
		t.Errorf("took %v, want %v at most", took, Timeout)
	}
}
