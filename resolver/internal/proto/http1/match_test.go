package http1

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

func TestExpressionsAreTriedOnSoMuchOfARequest(t *testing.T) {
	letters := regexp.MustCompile(`^a*$`)
	last := proto.HeaderMatch{Name: "Last", Value: "yes"}
	path := proto.Probe{Method: http.MethodGet, PathRegex: regexp.MustCompile(`^/a*$`)}
	header := proto.Probe{Method: http.MethodGet, Path: "/", Headers: []proto.HeaderMatch{{Name: "A", Regex: letters}}}
	query := proto.Probe{Method: http.MethodGet, Path: "/", Query: []proto.QueryMatch{{Name: "a", Regex: letters}}}
	// It never fits, for its last header isn't there.
	vain := header
	vain.Headers = []proto.HeaderMatch{header.Headers[0], last}
	text := func(n int) string { return strings.Repeat("a", n) }
	get := func(target, fields string) string {
		return "GET " + target + " HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n"
	}
	for name, c := range map[string]struct {
		request string
		probes  []proto.Probe
		fits    bool
	}{
		"a path":             {get("/"+text(maxText-1), ""), []proto.Probe{path}, true},
		"a long path":        {get("/"+text(maxText), ""), []proto.Probe{path}, false},
		"a header":           {get("/", "A: "+text(maxText)+"\r\n"), []proto.Probe{header}, true},
		"a long header":      {get("/", "A: "+text(maxText+1)+"\r\n"), []proto.Probe{header}, false},
		"a parameter":        {get("/?a="+text(maxText), ""), []proto.Probe{query}, true},
		"a long parameter":   {get("/?a="+text(maxText+1), ""), []proto.Probe{query}, false},
		"seven before it":    {get("/", "A: "+text(maxText)+"\r\n"), []proto.Probe{vain, vain, vain, vain, vain, vain, vain, header}, true},
		"too many before it": {get("/", "A: "+text(maxText)+"\r\n"), []proto.Probe{vain, vain, vain, vain, vain, vain, vain, vain, header}, false},
	} {
		r, _, err := ParseRequest([]byte(c.request))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := find(c.probes, &r) != nil; got != c.fits {
			t.Errorf("%s: fits is %v, want %v", name, got, c.fits)
		}
	}
}
