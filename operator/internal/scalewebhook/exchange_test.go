package scalewebhook

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/operator/internal/outbound"
)

// heard is a question as a webhook gets it.
type heard struct {
	Method, Path, Host, ContentType string
	Body                            map[string]any
}

func TestTheQuestionIsAsTheFormatsHaveIt(t *testing.T) {
	review := lobby("games")
	review.Labels = map[string]string{"a": "b"}
	review.Annotations = map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": "{}", "long": strings.Repeat("x", maxEntry), "short": "y",
	}
	for format, want := range map[Format]map[string]any{
		"": {
			"game_name": "lobby", "namespace": "games", "current_replicas": 3., "ready_replicas": 3., "players": 20., "capacity": 60.,
		},
		FormatAgones: {
			"request": map[string]any{
				"uid": "", "name": "lobby", "namespace": "games",
				"status": map[string]any{"replicas": 3., "readyReplicas": 2., "reservedReplicas": 0., "allocatedReplicas": 1.},
				"labels": map[string]any{"a": "b"}, "annotations": map[string]any{"short": "y"},
			},
			"response": nil,
		},
	} {
		var got heard
		address := serve(t, func(w http.ResponseWriter, r *http.Request) {
			got = heard{r.Method, r.URL.Path, strings.Split(r.Host, ":")[0], r.Header.Get("Content-Type"), nil}
			if err := json.NewDecoder(r.Body).Decode(&got.Body); err != nil {
				t.Error(err)
			}
			if request, ok := got.Body["request"].(map[string]any); ok {
				if uid, _ := request["uid"].(string); len(uid) != 36 {
					t.Errorf("the uid is %q", uid)
				}
				request["uid"] = ""
			}
			for _, name := range []string{"Authorization", "Cookie", "Accept-Encoding", "Idempotency-Key"} {
				if v, ok := r.Header[name]; ok {
					t.Errorf("there is a header %s: %s", name, v)
				}
			}
			scaleTo(1)(w, r)
		})
		c := newClient(t, Options{Services: services{"games/hook": at("games", "hook", address)}.lookup})
		_, _ = c.Ask(t.Context(), Endpoint{Service: hook(), Format: format}, review)
		if diff := cmp.Diff(heard{"POST", "/scale", "hook.games.svc", "application/json", want}, got); diff != "" {
			t.Errorf("format %q (-want +got):\n%s", format, diff)
		}
	}
}

// agonesSample answers as Agones' examples/autoscaler-webhook does: twice as many where more than 70 % are
// allocated, half of them below 30 %, and the request beside the response.
func agonesSample(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request *struct {
			UID       string `json:"uid"`
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
			Status    struct {
				Replicas          int32 `json:"replicas"`
				ReadyReplicas     int32 `json:"readyReplicas"`
				ReservedReplicas  int32 `json:"reservedReplicas"`
				AllocatedReplicas int32 `json:"allocatedReplicas"`
			} `json:"status"`
			Labels      map[string]string `json:"labels,omitempty"`
			Annotations map[string]string `json:"annotations,omitempty"`
		} `json:"request"`
		Response *struct {
			UID      string `json:"uid"`
			Scale    bool   `json:"scale"`
			Replicas int32  `json:"replicas"`
		} `json:"response"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.URL.Path != "/scale" {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	status := review.Request.Status
	review.Response = &struct {
		UID      string `json:"uid"`
		Scale    bool   `json:"scale"`
		Replicas int32  `json:"replicas"`
	}{review.Request.UID, false, status.Replicas}
	switch used := float64(status.AllocatedReplicas) / float64(status.Replicas); {
	case used > 0.7:
		review.Response.Scale, review.Response.Replicas = true, 2*status.Replicas
	case used < 0.3 && status.Replicas > 2:
		review.Response.Scale, review.Response.Replicas = true, status.Replicas/2
	}
	_ = json.NewEncoder(w).Encode(review)
}

func TestAWebhookWrittenForAgonesWorksUnchanged(t *testing.T) {
	address := serve(t, agonesSample)
	c := newClient(t, Options{Services: services{"games/hook": at("games", "hook", address)}.lookup})
	long := map[string]string{}
	for i := range 500 {
		long[strconv.Itoa(i)] = strings.Repeat("<", maxEntry/7)
	}
	for allocated, want := range map[int32]Answer{0: {true, 5}, 5: {}, 10: {true, 20}} {
		answer, err := c.Ask(t.Context(), Endpoint{Service: &ServiceReference{Name: "hook", Path: "scale"}, Format: FormatAgones},
			Review{Namespace: "games", Name: "lobby", Replicas: 10, ReadyReplicas: 10, AllocatedReplicas: allocated, Labels: long, Annotations: long})
		if err != nil && strings.Contains(err.Error(), "larger") {
			t.Fatalf("the question itself, sent back, makes the answer too large: %v", err)
		}
		if err != nil || answer != want {
			t.Errorf("with %d allocated: %+v, %v; want %+v", allocated, answer, err, want)
		}
	}
}

func TestConnectionsAreKeptAndAClosedOneIsNoFailure(t *testing.T) {
	var opened atomic.Int32
	srv := httptest.NewUnstartedServer(scaleTo(2))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	c := newClient(t, Options{Services: services{"games/hook": at("games", "hook", srv.Listener.Addr().String())}.lookup})
	ask := func() {
		t.Helper()
		for range 10 {
			if _, err := c.Ask(t.Context(), Endpoint{Service: hook()}, lobby("games")); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask()
	if n := opened.Load(); n != 1 {
		t.Errorf("ten questions took %d connections", n)
	}
	srv.CloseClientConnections()
	ask()
	if n := opened.Load(); n != 2 {
		t.Errorf("twenty questions took %d connections, want 2 as they were closed once", n)
	}
}

func TestAKeptConnectionThatEndsWithTheQuestionIsTriedAnew(t *testing.T) {
	var asked atomic.Int32
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if asked.Add(1) == 2 {
			panic(http.ErrAbortHandler)
		}
		scaleTo(2)(w, r)
	})
	c := newClient(t, Options{Services: services{"games/hook": at("games", "hook", address)}.lookup})
	for range 3 {
		if _, err := c.Ask(t.Context(), Endpoint{Service: hook()}, lobby("games")); err != nil {
			t.Error(err)
		}
	}
	if n := asked.Load(); n != 4 {
		t.Errorf("three questions were asked %d times, want one of them twice", n)
	}
}

func TestATransportIsBoundedAndKnowsNoProxy(t *testing.T) {
	transport := newTransport(outbound.Addresses{}, "", nil, DefaultTimeout)
	if transport.Proxy != nil {
		t.Error("there is a proxy")
	}
	if transport.MaxIdleConns == 0 || transport.MaxConnsPerHost == 0 || transport.IdleConnTimeout == 0 ||
		transport.MaxResponseHeaderBytes == 0 || transport.TLSHandshakeTimeout == 0 || !transport.DisableCompression {
		t.Errorf("something has no bound: %+v", transport)
	}
}
