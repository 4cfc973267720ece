// Package text bounds and joins what the operator says to people in conditions and
// events. It knows nothing of what is said.
package text

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	// maxWords bounds what is said in others' words, in characters.
	maxWords = 300
	// maxQuoted bounds what is put in quotes, in bytes.
	maxQuoted = 100
	// maxNames bounds how many names a sentence has.
	maxNames = 5
)

// Bounded cuts what is quoted of others.
func Bounded(words string) string {
	if runes := []rune(words); len(runes) > maxWords {
		return string(runes[:maxWords]) + "…"
	}
	return words
}

// Cut shortens a text to so many bytes, and never within a character. More stands for what
// is left out.
func Cut(text string, bytes int, more string) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "") + more
}

// Quoted is a text in quotes, cut where it is long.
func Quoted(words string) string {
	if len(words) <= maxQuoted {
		return strconv.Quote(words)
	}
	return strconv.Quote(Cut(words, maxQuoted, "")) + "..."
}

// UpperFirst begins a sentence with a text.
func UpperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// LowerFirst goes on with a text in the middle of a sentence.
func LowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// Some names a few of many.
func Some(names []string) string {
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}

// ServersWait begins "3 Servers wait for their players to leave".
func ServersWait(servers int32) string {
	if servers == 1 {
		return "1 Server waits for its"
	}
	return fmt.Sprintf("%d Servers wait for their", servers)
}
