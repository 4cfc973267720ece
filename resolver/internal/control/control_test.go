package control

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/go-logr/logr"

	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/serviceauth"
)

type verifier map[string]serviceauth.Identity

func (v verifier) Verify(_ context.Context, token string) (serviceauth.Identity, error) {
	if token == "later" {
		return serviceauth.Identity{}, serviceauth.ErrKeysUnavailable
	}
	if identity, ok := v[token]; ok {
		return identity, nil
	}
	return serviceauth.Identity{}, serviceauth.ErrSignature
}

type plane struct{}

func (plane) Routes(uids ...string) informerapi.RoutesResponse {
	return informerapi.RoutesResponse{Routes: []informerapi.Route{{UID: fmt.Sprintf("asked for %q", uids), Ports: []informerapi.RoutePort{}}}}
}

func (plane) Sessions(uids ...string) informerapi.SessionsResponse {
	return informerapi.SessionsResponse{Services: []informerapi.Sessions{{UID: fmt.Sprintf("asked for %q", uids)}}}
}

func TestOnlyTheOperatorMayAsk(t *testing.T) {
	server := httpserver.New(httpserver.Options{Address: "127.0.0.1:0", Log: logr.Discard()})
	Register(server, plane{}, verifier{
		"operator": {Namespace: "dormouse-system", ServiceAccount: "dormouse-operator"},
		"game":     {Namespace: "games", ServiceAccount: "default"},
	}, "dormouse-system/dormouse-operator")
	if err := server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	defer func() {
		cancel()
		<-done
	}()

	routes := func(of string) string {
		return `{"routes":[{"uid":"asked for ` + of + `","namespace":"","name":"","service":"","phase":"","ports":[]}]}`
	}
	cases := map[string]struct {
		path, token string
		wantStatus  int
		wantBody    string
	}{
		"the operator asks for routes":   {"/routes?uid=u-1", "Bearer operator", 200, routes(`[\"u-1\"]`)},
		"it asks for those of several":   {"/routes?uids=u-1,u-2", "Bearer operator", 200, routes(`[\"u-1\" \"u-2\"]`)},
		"it asks for those of all":       {"/routes", "Bearer operator", 200, routes("[]")},
		"no token":                       {"/routes", "", 401, `{"error":"send the operator's service account token as a bearer token"}`},
		"a bad token":                    {"/sessions", "Bearer forged", 401, `{"error":"the token's signature is wrong"}`},
		"another account":                {"/sessions", "Bearer game", 403, `{"error":"only the operator's service account may ask this"}`},
		"keys that can't be fetched now": {"/sessions", "Bearer later", 503, `{"error":"the cluster's keys can't be fetched"}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+server.Addr().String()+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", tc.token)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tc.wantStatus || string(body) != tc.wantBody {
				t.Errorf("%d %s\nwant %d %s", resp.StatusCode, body, tc.wantStatus, tc.wantBody)
			}
		})
	}
}
