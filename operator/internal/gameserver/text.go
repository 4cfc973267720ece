package gameserver

import (
	"fmt"
	"strings"
	"time"
)

// maxQuote bounds what is quoted of others' words, in bytes.
const maxQuote = 300

func quote(text string) string {
	text = strings.ToValidUTF8(text, "")
	if len(text) > maxQuote {
		text = strings.ToValidUTF8(text[:maxQuote], "") + "…"
	}
	return text
}

func people(n int32) string {
	if n == 1 {
		return "1 player is there."
	}
	return fmt.Sprintf("%d players are there.", n)
}

func since(t time.Time) string {
	if t.Unix() <= 0 {
		return ", because it isn't there any more"
	}
	return " since " + t.UTC().Format(time.RFC3339)
}

func sentenceOr(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return quote(text)
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
