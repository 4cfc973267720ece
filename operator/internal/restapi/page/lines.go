package page

import (
	"bufio"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLine bounds a line of a log in bytes. What is longer is cut.
const maxLine = 2 << 10

// readLine reads a line of a game's log, which may be anything: of a line that is too long it
// keeps the beginning.
func readLine(in *bufio.Reader) (string, error) {
	var line []byte
	cut := false
	for {
		part, err := in.ReadSlice('\n')
		if room := maxLine - len(line); len(part) > room {
			part, cut = part[:room], true
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && len(line) == 0 {
			return "", err
		}
		words := plainLine(string(line))
		if cut {
			words += "…"
		}
		return words, nil
	}
}

// plainLine takes away what isn't to be seen: colours of a terminal, and characters that move the
// cursor or turn the direction of text. Spaces stay as they are.
func plainLine(line string) string {
	var b strings.Builder
	line = strings.TrimRight(line, "\r\n")
	for len(line) > 0 {
		r, size := utf8.DecodeRuneInString(line)
		switch {
		case r == '\x1b':
			size = escapeLength(line)
		case r == '\t' || r == ' ' || (unicode.IsPrint(r) && r != utf8.RuneError):
			b.WriteRune(r)
		}
		line = line[size:]
	}
	return b.String()
}

// escapeLength is how long the escape sequence is that a text begins with: ESC [ parameters
// letter, as ECMA-48 has it, or ESC and one more.
func escapeLength(text string) int {
	if len(text) < 2 {
		return len(text)
	}
	if text[1] != '[' {
		return 1
	}
	for i := 2; i < len(text); i++ {
		if text[i] >= 0x40 && text[i] <= 0x7e {
			return i + 1
		}
	}
	return len(text)
}
