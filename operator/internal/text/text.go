// Package text bounds and joins texts of the operator's conditions and events. It knows nothing
// of their meaning.
package text

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	// maxWords bounds quoted messages, in characters.
	maxWords = 300
	// maxExcerpt bounds what is quoted of somebody's words, in bytes.
	maxExcerpt = 300
	// maxQuoted bounds what is put in quotation marks, in bytes.
	maxQuoted = 100
	// maxNames bounds how many names a sentence has.
	maxNames = 5
)

// Bounded shortens a quoted message.
func Bounded(words string) string {
	if runes := []rune(words); len(runes) > maxWords {
		return string(runes[:maxWords]) + "…"
	}
	return words
}

// Cut shortens a text to so many bytes, never within a character. more stands for what is left
// out.
func Cut(text string, bytes int, more string) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "") + more
}

// Excerpt shortens somebody's words to 300 bytes, without what isn't UTF-8.
func Excerpt(words string) string {
	return Cut(strings.ToValidUTF8(words, ""), maxExcerpt, "…")
}

// Quoted is a text in quotation marks, shortened if it is long.
func Quoted(words string) string {
	if len(words) <= maxQuoted {
		return strconv.Quote(words)
	}
	return strconv.Quote(Cut(words, maxQuoted, "")) + "..."
}

// UpperFirst makes a text begin a sentence.
func UpperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// LowerFirst makes a text fit into the middle of a sentence.
func LowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// Some lists a few of many names.
func Some(names []string) string {
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}

// Servers is "1 Server", or "2 Servers".
func Servers(n int32) string {
	if n == 1 {
		return "1 Server"
	}
	return fmt.Sprintf("%d Servers", n)
}

// ServersWait begins "3 Servers wait for their players to leave".
func ServersWait(servers int32) string {
	if servers == 1 {
		return "1 Server waits for its"
	}
	return fmt.Sprintf("%d Servers wait for their", servers)
}
