package scalewebhook

import (
	"strings"
	"unicode"
)

const (
	// maxMessage bounds a message, in characters.
	maxMessage = 600
	// maxQuoted bounds what is quoted of an answer, in characters.
	maxQuoted = 200
	// maxInner bounds what is quoted of other packages' errors, in characters. They may quote
	// the webhook in their turn.
	maxInner = 200
)

// plain makes one bounded line of a stranger's text. Control characters, and those that change the
// direction of text or aren't seen, become spaces, and spaces on end become one.
func plain(text string, most int) string {
	var b strings.Builder
	gap, length := false, 0
	for _, r := range text {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			gap = true
			continue
		}
		if gap && length > 0 {
			b.WriteByte(' ')
			length++
		}
		gap = false
		if length >= most {
			return strings.TrimRight(b.String(), " ") + "…"
		}
		b.WriteRune(r)
		length++
	}
	return b.String()
}
