package restapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/sync/errgroup"
)

// wait bounds waits.
const wait = 30 * time.Second

// document is what the tests read of /openapi.json.
type document struct {
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Parameters  []struct {
			Name, In string
			Schema   schema
		}
		RequestBody *struct {
			Content map[string]struct{ Schema schema }
		} `json:"requestBody"`
		Responses map[string]struct {
			Content map[string]struct{ Schema json.RawMessage }
		}
	}
	Components struct{ Schemas map[string]schema }
}

type schema struct {
	Ref        string `json:"$ref"`
	Type       any
	Enum       []any
	Minimum    *float64
	Maximum    *float64
	Properties map[string]schema
	Required   []string
}

// fuzzer makes values for schemas: most of them right, some wrong.
type fuzzer struct {
	*rand.Rand
	doc *document
	// right has it make right values alone.
	right bool
}

func (f fuzzer) wrong() any {
	return []any{nil, "", "x", -1, 0, 1.5, 1e300, true, []any{}, map[string]any{}, strings.Repeat("a", 300), "\x00", "💥", "../../x", "'; --"}[f.IntN(15)]
}

func (f fuzzer) value(s schema) any {
	if !f.right && f.IntN(5) == 0 {
		return f.wrong()
	}
	if s.Ref != "" {
		s = f.doc.Components.Schemas[s.Ref[strings.LastIndex(s.Ref, "/")+1:]]
	}
	switch {
	case len(s.Enum) > 0:
		return s.Enum[f.IntN(len(s.Enum))]
	case s.Type == "integer":
		low, high := 0.0, 100.0
		if s.Minimum != nil {
			low = *s.Minimum
		}
		if s.Maximum != nil {
			high = min(*s.Maximum, low+20)
		}
		return int64(low) + f.Int64N(int64(high-low)+1)
	case s.Type == "boolean":
		return f.IntN(2) == 0
	case s.Type == "object":
		o := map[string]any{}
		for name, p := range s.Properties {
			if slices.Contains(s.Required, name) || f.IntN(2) == 0 {
				o[name] = f.value(p)
			}
		}
		if !f.right && f.IntN(10) == 0 {
			o["more"] = f.wrong()
		}
		return o
	}
	return "minecraft"
}

// document reads the API's.
func (w *world) document() (doc document, text string) {
	w.t.Helper()
	r := w.want(w.call(0, "", http.MethodGet, "/openapi.json", ""), 200)
	if err := json.Unmarshal([]byte(r.text), &doc); err != nil {
		w.t.Fatal(err)
	}
	return doc, r.text
}

// A body that doesn't come is answered as the document says, wherever there is one.
func TestABodyThatDoesntComeIsTimedOut(t *testing.T) {
	w := newWorld(t)
	doc, _ := w.document()
	var calls errgroup.Group
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if op.RequestBody == nil {
				continue
			}
			if _, ok := op.Responses["408"]; !ok {
				t.Errorf("%s: the document doesn't say that it may be answered with 408", op.OperationID)
			}
			calls.Go(func() error {
				// What is written there would be the body.
				body, never := io.Pipe()
				defer func() { _ = never.Close() }()
				request, err := http.NewRequestWithContext(t.Context(), strings.ToUpper(method), w.replicas[0].URL+strings.ReplaceAll(path, "{id}", "5100"), body)
				if err != nil {
					return err
				}
				request.ContentLength = 2
				request.Header.Set("Authorization", "Bearer "+w.token)
				request.Header.Set("Content-Type", "application/json")
				answer, err := http.DefaultTransport.RoundTrip(request)
				if err != nil {
					return fmt.Errorf("%s: %w", op.OperationID, err)
				}
				defer func() { _ = answer.Body.Close() }()
				got := reply{status: answer.StatusCode}
				if err := json.NewDecoder(answer.Body).Decode(&got.body); err != nil {
					return fmt.Errorf("%s: %w", op.OperationID, err)
				}
				if code, _, _ := got.error(); got.status != http.StatusRequestTimeout || code != "timeout" {
					return fmt.Errorf("%s: answered %d with code %q, want 408 with timeout", op.OperationID, got.status, code)
				}
				return nil
			})
		}
	}
	if err := calls.Wait(); err != nil {
		t.Error(err)
	}
}

// Every path of the document, with right and wrong values by chance, is answered as the document
// says: with a status that it has, and a body of the schema that it has for that. None is answered
// with 500.
func TestAnswersAreAsTheDocumentSays(t *testing.T) {
	w := newWorld(t)
	doc, text := w.document()
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("openapi.json", parsed); err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	f := fuzzer{Rand: rand.New(rand.NewPCG(seed, 1)), doc: &doc}
	seen := map[string]int{}
	w.want(w.call(0, w.token, http.MethodPost, "/api/v1/server/5000", two), 201)
	var operations [][2]string
	for path, methods := range doc.Paths {
		for method := range methods {
			operations = append(operations, [2]string{method, path})
		}
	}
	// What deletes comes last.
	slices.SortFunc(operations, func(a, b [2]string) int {
		return strings.Compare(strings.Replace(a[0], "delete", "~", 1)+a[1], strings.Replace(b[0], "delete", "~", 1)+b[1])
	})
	for _, o := range operations {
		method, path := o[0], o[1]
		op := doc.Paths[path][method]
		for n := range 60 {
			f.right = n < 4
			at, query := path, []string{}
			for _, p := range op.Parameters {
				value := f.value(p.Schema)
				if n, ok := value.(int64); ok && p.Name == "id" {
					value = 5000 + n%2*f.Int64N(3)
					if f.right {
						value = 5000
					}
				}
				v := strings.NewReplacer("/", "%2F", "?", "%3F", "#", "%23", "&", "%26", " ", "%20", "\x00", "%00").Replace(fmt.Sprint(value))
				switch {
				case p.In == "path" && v == "":
					at = "" // another operation's path
				case p.In == "path":
					at = strings.ReplaceAll(at, "{"+p.Name+"}", v)
				case f.IntN(2) == 0:
					query = append(query, p.Name+"="+v)
				}
			}
			if at == "" {
				continue
			}
			if len(query) > 0 {
				at += "?" + strings.Join(query, "&")
			}
			var body []byte
			if op.RequestBody != nil {
				if body, err = json.Marshal(f.value(op.RequestBody.Content["application/json"].Schema)); err != nil {
					t.Fatal(err)
				}
			}
			got := w.fuzz(strings.ToUpper(method), at, body, streams(op.Responses["200"].Content))
			what := fmt.Sprintf("%s %s %s", method, at, body)
			if got.status == http.StatusNotFound && !strings.Contains(got.text, "success") || got.status == http.StatusMovedPermanently || got.status == http.StatusTemporaryRedirect {
				continue // such a path isn't of this operation
			}
			status := fmt.Sprint(got.status)
			seen[op.OperationID+" "+status]++
			said, ok := op.Responses[status]
			code, _, _ := got.error()
			if refused := got.status == http.StatusServiceUnavailable && code == "no_server"; !ok && got.status != http.StatusNotFound && got.status != http.StatusMethodNotAllowed || got.status >= 500 && !refused {
				t.Errorf("%s: answered %v, of which the document says nothing (%s)", what, got, code)
				continue
			}
			if !ok || said.Content["text/event-stream"].Schema != nil {
				continue
			}
			pointer := fmt.Sprintf("openapi.json#/paths/%s/%s/responses/%s/content/application~1json/schema", strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(path), method, status)
			want, err := compiler.Compile(pointer)
			if err != nil {
				t.Fatal(err)
			}
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(got.text))
			if err != nil {
				t.Errorf("%s: answered %v, which is no JSON: %v", what, got, err)
			} else if err := want.Validate(value); err != nil {
				t.Errorf("%s: answered %v, which isn't as the document says: %v", what, got, err)
			}
		}
	}
	for _, op := range []string{"create-server 409", "get-server 200", "list-servers 200", "get-server-port 200", "resize-server 200", "start-server 200", "stop-server 200", "delete-server 200"} {
		if seen[op] == 0 {
			t.Errorf("no call was answered with %s", op)
		}
	}
}

func streams(content map[string]struct{ Schema json.RawMessage }) bool {
	_, ok := content["text/event-stream"]
	return ok
}

// fuzz makes a request as it is; of a stream it reads the beginning alone.
func (w *world) fuzz(method, at string, body []byte, stream bool) reply {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.replicas[0].URL+at, bytes.NewReader(body))
	if err != nil {
		w.t.Fatalf("%s: %v", at, err)
	}
	request.Header.Set("Authorization", "Bearer "+w.token)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	once := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := once.Do(request)
	if err != nil {
		w.t.Fatalf("%s: %v", at, err)
	}
	defer func() { _ = answer.Body.Close() }()
	got := reply{status: answer.StatusCode, header: answer.Header}
	if stream && answer.StatusCode == http.StatusOK {
		return got
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(answer.Body); err != nil {
		w.t.Fatalf("%s: %v", at, err)
	}
	got.text = text.String()
	_ = json.Unmarshal(text.Bytes(), &got.body) // a test that wants JSON looks at it
	return got
}
