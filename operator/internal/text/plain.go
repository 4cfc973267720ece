package text

import (
	"strings"
	"unicode"
)

// Plain makes one line of a stranger's text, of so many characters at most. Control characters,
// and those that change the direction of text or aren't seen, become spaces, and spaces on end
// become one.
func Plain(words string, most int) string {
	var b strings.Builder
	gap, length := false, 0
	for _, r := range words {
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
