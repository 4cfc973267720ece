package informer

import (
	"encoding/json"
	"strings"
	"testing"

	"dormouse.dev/dormouse/internal/informerapi"
)

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want string // in the error; empty: taken
	}{
		"a whole request is taken":               {`{"count":3,"svc":"lobby","namespace":"games"}`, ""},
		"KubeElasti's is taken":                  {`{"count":1,"svc":"lobby","namespace":"games"}`, ""},
		"white space around it is taken":         {" {\"count\":1,\"svc\":\"lobby\",\"namespace\":\"games\"}\n", ""},
		"an empty body is refused":               {``, "the body must be one JSON object"},
		"half a body is refused":                 {`{"count":1`, "the body must be one JSON object"},
		"an array is refused":                    {`[]`, "the body must be one JSON object"},
		"what follows the object is refused":     {`{"count":1,"svc":"lobby","namespace":"games"}{}`, "the body must be one JSON object"},
		"a newer resolver's is taken":            {`{"count":1,"svc":"lobby","namespace":"games","host":"x","more":{"a":[1]}}`, ""},
		"a field twice is refused":               {`{"count":1,"count":2,"svc":"lobby","namespace":"games"}`, `duplicate field "count"`},
		"a field in capitals is refused":         {`{"Count":1,"svc":"lobby","namespace":"games"}`, "count is 0"},
		"a count of zero is refused":             {`{"count":0,"svc":"lobby","namespace":"games"}`, "count is 0: it must be from 1"},
		"a negative count is refused":            {`{"count":-1,"svc":"lobby","namespace":"games"}`, "count is -1"},
		"a missing count is refused":             {`{"svc":"lobby","namespace":"games"}`, "count is 0"},
		"a count beyond the bound is refused":    {`{"count":1000001,"svc":"lobby","namespace":"games"}`, "to 1000000"},
		"a count that is no integer is refused":  {`{"count":1.5,"svc":"lobby","namespace":"games"}`, "count"},
		"a count in quotes is refused":           {`{"count":"1","svc":"lobby","namespace":"games"}`, "count"},
		"a missing svc is refused":               {`{"count":1,"namespace":"games"}`, "svc must be the name of a Service"},
		"a svc with capitals is refused":         {`{"count":1,"svc":"Lobby","namespace":"games"}`, "svc must be the name of a Service"},
		"a svc that is a path is refused":        {`{"count":1,"svc":"../x","namespace":"games"}`, "svc must be the name of a Service"},
		"a svc over 63 characters is refused":    {`{"count":1,"svc":"` + strings.Repeat("a", 64) + `","namespace":"games"}`, "svc must be"},
		"a missing namespace is refused":         {`{"count":1,"svc":"lobby"}`, "namespace must be"},
		"a namespace with a dot is refused":      {`{"count":1,"svc":"lobby","namespace":"a.b"}`, "namespace must be"},
		"a namespace of another type is refused": {`{"count":1,"svc":"lobby","namespace":7}`, "namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(c.body))
			if c.want == "" {
				if err != nil {
					t.Errorf("parse = %v, want no error", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("parse = %v, want an error with %q", err, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"count":3,"svc":"lobby","namespace":"games"}`))
	f.Add([]byte(`{"count":1e3,"svc":"","namespace":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := parse(body)
		if err != nil {
			return
		}
		if r.Count < 1 || r.Count > informerapi.MaxWakeCount || len(r.Svc) > 63 || r.Svc == "" || len(r.Namespace) > 63 || r.Namespace == "" {
			t.Fatalf("parse took %+v", r)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if other, err := parse(again); err != nil || other != r {
			t.Fatalf("what was taken, %+v, is not taken again: %v", r, err)
		}
	})
}
