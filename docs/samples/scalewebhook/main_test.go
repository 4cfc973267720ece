package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestItAnswersBothFormatsAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		method, path, body string
		code               int
		answer             string
	}{
		"players are to have a fifth of the slots free": {
			body: `{"game_name":"arena","namespace":"games","current_replicas":3,"ready_replicas":3,"players":40,"capacity":48}`,
			code: 200, answer: `{"desired_replicas":4,"scale":true}`,
		},
		"exactly a fifth is free": {body: `{"ready_replicas":2,"players":16,"capacity":20}`, code: 200, answer: `{"desired_replicas":2,"scale":true}`},
		"one is there for nobody": {body: `{"ready_replicas":3,"players":0,"capacity":48}`, code: 200, answer: `{"desired_replicas":1,"scale":true}`},
		"no server is ready":      {body: `{"current_replicas":1,"players":0,"capacity":0}`, code: 200, answer: `{"desired_replicas":0,"scale":false}`},
		"Agones' servers are to have a fifth free": {
			body: `{"request":{"uid":"4f","name":"arena","namespace":"games","status":{"replicas":5,"readyReplicas":1,"reservedReplicas":1,"allocatedReplicas":4}},"response":null}`,
			code: 200, answer: `{"response":{"replicas":7,"scale":true,"uid":"4f"}}`,
		},
		"one of Agones' is there for nobody": {body: `{"request":{"uid":"1","status":{}}}`, code: 200, answer: `{"response":{"replicas":1,"scale":true,"uid":"1"}}`},
		"no more than may be answered":       {body: `{"ready_replicas":1,"players":1000000,"capacity":1}`, code: 200, answer: `{"desired_replicas":10000,"scale":true}`},
		"no JSON":                            {body: `scale`, code: 400},
		"a long question":                    {body: `{"game_name":"` + strings.Repeat("x", maxBody) + `"}`, code: 400},
		"another path":                       {path: "/other", body: `{}`, code: 404},
		"another method":                     {method: http.MethodGet, code: 405},
		"health":                             {method: http.MethodGet, path: "/healthz", code: 200},
	} {
		t.Run(name, func(t *testing.T) {
			method, path := http.MethodPost, "/scale"
			if c.method != "" {
				method = c.method
			}
			if c.path != "" {
				path = c.path
			}
			w := httptest.NewRecorder()
			handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(c.body)))
			if w.Code != c.code {
				t.Fatalf("answered %d, want %d: %s", w.Code, c.code, w.Body)
			}
			if got := strings.TrimSpace(w.Body.String()); c.answer != "" && got != c.answer {
				t.Errorf("answered %s, want %s", got, c.answer)
			}
		})
	}
}
