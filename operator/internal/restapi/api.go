package restapi

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// maxBody bounds a request's body.
const maxBody = 64 << 10

// root is below what the API is; other paths are the page's.
const root = "/api/"

// newAPI makes the API with its document, without operations.
func newAPI(mux *http.ServeMux) huma.API {
	config := huma.DefaultConfig("Dormouse", "v1")
	config.Info.Description = "Game servers that sleep while nobody plays. Servers are known by number. Each call needs a bearer token, and Kubernetes' roles decide what its owner may do; those of game processes need the code of their Server. Paths of /api/ may end with a slash."
	// Answers are as the document says, without a link to it.
	config.CreateHooks, config.DocsPath, config.SchemasPath = nil, "", ""
	config.RejectUnknownQueryParameters = true
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer", Description: "A token of Kubernetes, such as kubectl create token makes."},
	}
	return humago.New(mux, config)
}

type aliveOutput struct {
	Body struct {
		Alive bool `json:"alive" enum:"true"`
	}
}

// registerHealth adds the health check, which needs no token.
func registerHealth(api huma.API) {
	huma.Register(api, huma.Operation{
		Method: http.MethodGet, Path: "/healthcheck", OperationID: "healthcheck", Summary: "Check that the API runs",
	}, func(context.Context, *struct{}) (*aliveOutput, error) {
		out := &aliveOutput{}
		out.Body.Alive = true
		return out, nil
	})
}

// methods are those that a path may have.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete}

// strays answers calls of paths and methods that there aren't.
func strays(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, m := range methods {
			other := r.Clone(r.Context())
			other.Method = m
			if _, pattern := mux.Handler(other); pattern != "" && pattern != root && pattern != "/" {
				allowed = append(allowed, m)
			}
		}
		f := fail(http.StatusNotFound, "", "There is no such path: /openapi.json has those that there are.")
		if len(allowed) > 0 && !slices.Contains(allowed, r.Method) {
			f = fail(http.StatusMethodNotAllowed, "", "This path takes "+strings.Join(allowed, ", ")+".")
			w.Header().Set("Allow", strings.Join(allowed, ", "))
		}
		answer(w, f)
	}
}

// answer writes an error where huma doesn't.
func answer(w http.ResponseWriter, f *Failure) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_ = json.NewEncoder(w).Encode(f) // the caller may be gone
}

// withoutSlash takes a slash at the end off a path of the API, which may be there or not.
func withoutSlash(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.Path; strings.HasPrefix(p, root) && len(p) > len(root) && strings.HasSuffix(p, "/") {
			r = r.Clone(r.Context())
			r.URL.Path, r.URL.RawPath = strings.TrimSuffix(p, "/"), strings.TrimSuffix(r.URL.RawPath, "/")
		}
		next.ServeHTTP(w, r)
	})
}
