package trigger

import (
	"strings"
	"testing"
)

func TestANumberIsFoundOrTheErrorSaysWhatIsThereInstead(t *testing.T) {
	for name, c := range map[string]struct {
		body, pointer string
		want          float64
		wantErr       string
	}{
		"the whole answer":     {body: "7", pointer: "", want: 7},
		"a field":              {body: `{"players":{"online":3}}`, pointer: "/players/online", want: 3},
		"an element":           {body: `[1,2.5]`, pointer: "/1", want: 2.5},
		"an escaped name":      {body: `{"a/b":{"c~d":4}}`, pointer: "/a~1b/c~0d", want: 4},
		"not JSON":             {body: "seven", wantErr: "not JSON"},
		"a missing field":      {body: `{}`, pointer: "/players", wantErr: `nothing at "/players"`},
		"a string":             {body: `{"n":"3"}`, pointer: "/n", wantErr: "no number"},
		"a negative number":    {body: `{"n":-1}`, pointer: "/n", wantErr: "negative"},
		"a number out of size": {body: `1e999`, wantErr: "not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseNumber([]byte(c.body), c.pointer)
			if (err == nil) != (c.wantErr == "") || err != nil && !strings.Contains(err.Error(), c.wantErr) {
				t.Fatalf("error %v, want %q in it", err, c.wantErr)
			}
			if got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
