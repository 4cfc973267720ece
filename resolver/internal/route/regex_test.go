package route

import (
	"fmt"
	"strings"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestAnExpressionOfALargeProgramFitsNothing(t *testing.T) {
	for text, fits := range map[v1alpha1.HTTPRegex]string{
		`^/v[0-9]+/(live|ready)$`:                     "/v1/live",
		`^/api/.{0,99}/status$`:                       "/api/a/status",
		`(?i)^/\pL+$`:                                 "/Ä",
		`^/api/.{0,1000}/status$`:                     "",
		`^/(([a-z]{0,9}-){0,9}){0,9}/status$`:         "",
		v1alpha1.HTTPRegex(strings.Repeat(`\pL`, 85)): "",
		`(`: "",
	} {
		if got := compile(text); (got == noText) != (fits == "") || fits != "" && !got.MatchString(fits) {
			t.Errorf("%s became %s", text, got)
		}
	}
}

func TestExpressionsAreKeptForTheNextBuild(t *testing.T) {
	first := compile("^/kept$")
	if compile("^/kept$") != first {
		t.Error("the expression was compiled again")
	}
	for i := range maxCompiled {
		compile(v1alpha1.HTTPRegex(fmt.Sprintf("^/%d$", i)))
	}
	if n := compiled.Len(); n != maxCompiled {
		t.Errorf("%d expressions are kept, want %d", n, maxCompiled)
	}
	if compile("^/kept$") == first {
		t.Error("the oldest expression was never given up")
	}
}
