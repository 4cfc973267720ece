package route

import (
	"regexp"
	"regexp/syntax"

	"k8s.io/utils/lru"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// An expression takes time and memory in proportion to its program, and x{0,1000} is a short text
// with a long program. These bound it: the instructions, and the ranges of characters in them.
const (
	maxInstructions = 300
	maxRanges       = 4096
)

// maxCompiled bounds how many expressions are kept for later builds.
const maxCompiled = 1024

// compiled keeps expressions by their text: routes are built anew whenever a status changes.
var compiled = lru.New(maxCompiled)

// noText fits no text.
var noText = regexp.MustCompile(`$.^`)

// compile makes an expression of the spec; nil where there is none. One that is too large, or
// can't be read, which the API server refuses, fits nothing, so that its requests wake the service.
func compile(text v1alpha1.HTTPRegex) *regexp.Regexp {
	if text == "" {
		return nil
	}
	if cached, ok := compiled.Get(text); ok {
		return cached.(*regexp.Regexp)
	}
	expression := noText
	if small(string(text)) {
		expression = regexp.MustCompile(string(text))
	}
	compiled.Add(text, expression)
	return expression
}

// small reports whether a text is an expression whose program is within the bounds.
func small(text string) bool {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return false
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(program.Inst) > maxInstructions {
		return false
	}
	ranges := 0
	for i := range program.Inst {
		ranges += len(program.Inst[i].Rune) / 2
	}
	return ranges <= maxRanges
}
