package report

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"dormouse.dev/dormouse/internal/reportapi"
)

// body is a report with something in its game, and beside it.
func body(game, more string) string {
	return `{"server":"lobby-1","instance":"b7c1","sequence":1,"game":{"state":"Ready"` + game + `},"deletionAllowed":true` + more + `}`
}

func values(n, size int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"%0*d"`, size, i)
	}
	return "[" + strings.Join(list, ",") + "]"
}

func pairs(n, size int, prefix string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"%s%d":"%s"`, prefix, i, strings.Repeat("v", size))
	}
	return "{" + strings.Join(list, ",") + "}"
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want string // in the error; empty: taken
	}{
		"a report is taken":                      {body("", ""), ""},
		"a full one is taken":                    {body(`,"players":{"current":3,"capacity":2,"ids":`+values(1000, 128)+`},"counters":{"rooms":{"count":2,"capacity":2}},"lists":{"a":{"capacity":1000,"values":`+values(1000, 128)+`}},"labels":{"agones.dev/sdk-map":"de_dust"},"annotations":{"agones.dev/sdk-Motd":"Hello, you!"},"permission":"Denied","reservedUntil":"2026-01-02T03:04:05Z"`, `,"shutdownSeen":true,"seen":"abc"`), ""},
		"a restore is taken whatever it says":    {`{"server":"lobby-1","instance":"b7c1","sequence":0,"restore":true,"game":{"state":""},"deletionAllowed":false}`, ""},
		"an empty body is refused":               {``, "the body must be one JSON object"},
		"half a body is refused":                 {`{"server":"lobby-1"`, "the body must be one JSON object"},
		"an array is refused":                    {`[]`, "the body must be one JSON object"},
		"what follows is refused":                {body("", "") + "{}", "the body must be one JSON object"},
		"a newer sidecar's is taken":             {body(`,"players":{"current":1,"bots":2},"mood":["good"]`, `,"load":{"cpu":1}`), ""},
		"a field twice is refused":               {body("", `,"sequence":2`), `duplicate field "sequence"`},
		"a missing server is refused":            {`{"instance":"a","sequence":1,"game":{"state":"Ready"},"deletionAllowed":true}`, "server must be the name of a Server"},
		"a server that is a path is refused":     {`{"server":"../x","instance":"a","sequence":1,"game":{"state":"Ready"},"deletionAllowed":true}`, "server must be the name of a Server"},
		"a missing instance is refused":          {`{"server":"a","sequence":1,"game":{"state":"Ready"},"deletionAllowed":true}`, "instance must have from 1 to 64 bytes"},
		"a long instance is refused":             {`{"server":"a","instance":"` + strings.Repeat("x", 65) + `","sequence":1,"game":{"state":"Ready"},"deletionAllowed":true}`, "instance must have"},
		"a long seen is refused":                 {body("", `,"seen":"`+strings.Repeat("x", 65)+`"`), "seen and looked must have at most 64"},
		"a negative sequence is refused":         {`{"server":"a","instance":"a","sequence":-1,"game":{"state":"Ready"},"deletionAllowed":true}`, "sequence"},
		"a sequence beyond an int64 is refused":  {`{"server":"a","instance":"a","sequence":9223372036854775808,"game":{"state":"Ready"},"deletionAllowed":true}`, "sequence is 9223372036854775808"},
		"another state is refused":               {strings.Replace(body("", ""), "Ready", "Sleepy", 1), `game.state is "Sleepy"`},
		"a missing state is refused":             {strings.Replace(body("", ""), "Ready", "", 1), `game.state is ""`},
		"another permission is refused":          {body(`,"permission":"Maybe"`, ""), `game.permission is "Maybe"`},
		"a long message is refused":              {body(`,"message":"`+strings.Repeat("x", 1025)+`"`, ""), "game.message has 1025 bytes"},
		"negative players are refused":           {body(`,"players":{"current":-1}`, ""), "neither may be negative"},
		"a negative capacity is refused":         {body(`,"players":{"current":1,"capacity":-1}`, ""), "neither may be negative"},
		"too many ids are refused":               {body(`,"players":{"current":1,"ids":`+values(1001, 4)+`}`, ""), "1001 ids"},
		"a long id is refused":                   {body(`,"players":{"current":1,"ids":`+values(1, 129)+`}`, ""), "129 characters"},
		"too many counters are refused":          {body(`,"counters":`+strings.ReplaceAll(pairs(33, 0, "c"), `""`, `{}`), ""), "33 counters"},
		"a counter below zero is refused":        {body(`,"counters":{"a":{"count":-1,"capacity":3}}`, ""), "neither may be negative"},
		"a counter above capacity is refused":    {body(`,"counters":{"a":{"count":4,"capacity":3}}`, ""), "more than its capacity"},
		"a counter without a name is refused":    {body(`,"counters":{"":{"count":1,"capacity":3}}`, ""), "a counter's name"},
		"too many lists are refused":             {body(`,"lists":`+strings.ReplaceAll(pairs(5, 0, "l"), `""`, `{}`), ""), "5 lists"},
		"a list with a value twice is refused":   {body(`,"lists":{"a":{"capacity":3,"values":["x","y","x"]}}`, ""), `has the value "x" twice`},
		"a list above capacity is refused":       {body(`,"lists":{"a":{"capacity":1,"values":["x","y"]}}`, ""), "2 of 1 values"},
		"a list's capacity is bounded":           {body(`,"lists":{"a":{"capacity":1001}}`, ""), "capacity of 1001"},
		"a list's negative capacity is refused":  {body(`,"lists":{"a":{"capacity":-1}}`, ""), "capacity of -1"},
		"a long value is refused":                {body(`,"lists":{"a":{"capacity":3,"values":`+values(1, 129)+`}}`, ""), "129 characters"},
		"a value is measured in characters":      {body(`,"lists":{"a":{"capacity":1,"values":["`+strings.Repeat("ж", 128)+`"]}},"players":{"current":1,"ids":["`+strings.Repeat("ж", 128)+`"]}`, ""), ""},
		"a long foreign value is refused":        {body(`,"lists":{"a":{"capacity":1,"values":["`+strings.Repeat("ж", 129)+`"]}}`, ""), "129 characters"},
		"somebody else's label is refused":       {body(`,"labels":{"app":"x"}`, ""), "must begin with agones.dev/sdk-"},
		"a finalizer's annotation is refused":    {body(`,"annotations":{"dormouse.dev/x":"y"}`, ""), "must begin with agones.dev/sdk-"},
		"a label's key that can't be is refused": {body(`,"labels":{"agones.dev/sdk-a b":"x"}`, ""), "a key that can't be one"},
		"an empty name of a key is refused":      {body(`,"labels":{"agones.dev/sdk-":"x"}`, ""), "a key that can't be one"},
		"a label's value is checked":             {body(`,"labels":{"agones.dev/sdk-a":"x y"}`, ""), "a value that labels can't have"},
		"too many labels are refused":            {body(`,"labels":`+pairs(65, 1, "agones.dev/sdk-"), ""), "65 labels"},
		"a long annotation is refused":           {body(`,"annotations":`+pairs(1, 4097, "agones.dev/sdk-"), ""), "4097 bytes"},
		"long annotations together are refused":  {body(`,"annotations":`+pairs(40, 4096, "agones.dev/sdk-"), ""), "bytes together"},
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
	f.Add([]byte(body(`,"players":{"current":1},"lists":{"a":{"capacity":2,"values":["x"]}}`, "")))
	f.Add([]byte(`{"server":"a","instance":"b","sequence":1e3,"restore":true}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parse(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Game.Labels) > reportapi.MaxMetadata || r.Instance == "" || len(r.Server) > 253 {
			t.Fatalf("parse took %+v", r)
		}
		if _, err := parse(again); err != nil {
			t.Fatalf("what was taken isn't taken again: %v\n%s", err, again)
		}
	})
}
