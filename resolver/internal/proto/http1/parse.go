package http1

import (
	"bytes"
	"errors"
	"math"
)

// maxMethod bounds a method. Anything longer is no request.
const maxMethod = 32

// maxChunkDigits bounds the size of a chunk: 15 hexadecimal digits fit an int64.
const maxChunkDigits = 15

// Errors of a head that is not whole, or not plain.
var (
	errShort    = errors.New("more of the head is to come")
	errNotPlain = errors.New("this is not plain HTTP/1")
)

// Request is the head of a request. Its slices are parts of what was parsed.
type Request struct {
	Method, Target []byte
	// Minor is 0 or 1.
	Minor int
	// Fields are the lines after the first, each of which is a valid field.
	Fields []byte
	framing
}

// ParseRequest parses the head that b begins with, and returns its size in bytes. It accepts
// what RFC 9112 allows a client to send, except for what servers may read in different ways:
// errNotPlain. The error is errShort while b may be the beginning of a head.
func ParseRequest(b []byte) (r Request, size int, err error) {
	first, rest, ok := cutLine(b)
	if !ok {
		if mayBeRequest(b) {
			return Request{}, 0, errShort
		}
		return Request{}, 0, errNotPlain
	}
	if r.Method, r.Target, r.Minor, ok = requestLine(first); !ok {
		return Request{}, 0, errNotPlain
	}
	if !headEnds(rest) {
		return Request{}, 0, errShort
	}
	fields := rest
	for {
		var line []byte
		if line, rest, ok = cutLine(rest); !ok {
			return Request{}, 0, errNotPlain
		}
		if len(line) == 0 {
			r.Fields = fields[:len(fields)-len(rest)-len("\r\n")]
			return r, len(b) - len(rest), nil
		}
		name, value, ok := field(line)
		if !ok {
			return Request{}, 0, errNotPlain
		}
		r.add(name, value)
	}
}

// Path is the target without its query.
func (r *Request) Path() []byte {
	path, _, _ := bytes.Cut(r.Target, []byte("?"))
	return path
}

// each calls enough with the fields until it returns true.
func (r *Request) each(enough func(name, value []byte) bool) bool {
	for rest := r.Fields; len(rest) > 0; {
		var line []byte
		line, rest, _ = cutLine(rest)
		if name, value, ok := field(line); ok && enough(name, value) {
			return true
		}
	}
	return false
}

// mayBeRequest reports whether an unfinished line may be that of a request.
func mayBeRequest(line []byte) bool {
	method, _, found := bytes.Cut(line, []byte(" "))
	if found {
		return isToken(method)
	}
	return len(method) <= maxMethod && (len(method) == 0 || isToken(method))
}

// headEnds reports whether what follows the first line has an empty line, with either kind of
// line end.
func headEnds(b []byte) bool {
	return bytes.HasPrefix(b, []byte("\n")) || bytes.HasPrefix(b, []byte("\r\n")) ||
		bytes.Contains(b, []byte("\n\r\n")) || bytes.Contains(b, []byte("\n\n"))
}

// cutLine cuts the first line off b, without its end. A bare line feed stays part of the line,
// and makes it invalid.
func cutLine(b []byte) (line, rest []byte, ok bool) {
	i := bytes.IndexByte(b, '\n')
	switch {
	case i < 0:
		return nil, b, false
	case i > 0 && b[i-1] == '\r':
		return b[:i-1], b[i+1:], true
	}
	return b[:i+1], b[i+1:], true
}

// requestLine reads a request's first line.
func requestLine(line []byte) (method, target []byte, minor int, ok bool) {
	method, rest, _ := bytes.Cut(line, []byte(" "))
	target, version, _ := bytes.Cut(rest, []byte(" "))
	minor, ok = minorOf(version)
	return method, target, minor, ok && len(method) <= maxMethod && isToken(method) && isTarget(target)
}

// statusLine reads a response's first line.
func statusLine(line []byte) (code, minor int, ok bool) {
	version, rest, _ := bytes.Cut(line, []byte(" "))
	status, reason, _ := bytes.Cut(rest, []byte(" "))
	if minor, ok = minorOf(version); !ok || len(status) != 3 || !isValue(reason) {
		return 0, 0, false
	}
	for _, digit := range status {
		if digit < '0' || digit > '9' {
			return 0, 0, false
		}
		code = 10*code + int(digit-'0')
	}
	return code, minor, code >= 100
}

// minorOf reads HTTP/1.0 and HTTP/1.1.
func minorOf(version []byte) (minor int, ok bool) {
	switch string(version) {
	case "HTTP/1.1":
		return 1, true
	case "HTTP/1.0":
		return 0, true
	}
	return 0, false
}

// field reads a line of a head.
func field(line []byte) (name, value []byte, ok bool) {
	name, value, ok = bytes.Cut(line, []byte(":"))
	if !ok || !isToken(name) || !isValue(value) {
		return nil, nil, false
	}
	return name, bytes.Trim(value, " \t"), true
}

// chunkSize reads the line before a chunk. An extension is skipped.
func chunkSize(line []byte) (size int64, ok bool) {
	digits, extension, _ := bytes.Cut(line, []byte(";"))
	if len(digits) == 0 || len(digits) > maxChunkDigits || !isValue(extension) {
		return 0, false
	}
	for _, c := range digits {
		digit, ok := hexDigit(c)
		if !ok {
			return 0, false
		}
		size = size<<4 | int64(digit)
	}
	return size, true
}

func hexDigit(c byte) (digit byte, ok bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// framing is what a head determines about the end of its message, and about the connection
// after it.
type framing struct {
	// length is the Content-Length; lengths counts how many there were.
	length  int64
	lengths int
	// chunked is set where there is one Transfer-Encoding, which is chunked; encodings counts
	// them.
	chunked   bool
	encodings int
	// asks is set where another protocol is asked for, and upgrades where that is another than
	// HTTP/2. Requests to upgrade to HTTP/2 are so common that servers ignore them.
	asks, upgrades bool
	// closes is set where the connection is to end with the message.
	closes bool
	// bad is set where a field can't be read, or can be read in several ways.
	bad bool
	// host is the Host, and hosts counts them. It is not a copy.
	host  []byte
	hosts int
}

// add takes in a field.
func (f *framing) add(name, value []byte) {
	switch {
	case is(name, "Content-Length"):
		f.lengths++
		length, ok := decimal(value)
		f.length, f.bad = length, f.bad || !ok
	case is(name, "Transfer-Encoding"):
		f.encodings++
		f.chunked = is(value, "chunked")
	case is(name, "Host"):
		f.host = value
		f.hosts++
	case is(name, "Upgrade"):
		f.asks = true
		f.upgrades = f.upgrades || !is(value, "h2c")
	case is(name, "Connection"):
		for token := range bytes.SplitSeq(value, []byte(",")) {
			f.closes = f.closes || is(bytes.Trim(token, " \t"), "close")
		}
	}
}

// matters reports whether add looks at fields with the name.
func matters(name []byte) bool {
	return is(name, "Host") || is(name, "Content-Length") || is(name, "Transfer-Encoding") || is(name, "Upgrade") || is(name, "Connection")
}

// plain reports whether, by its fields, all would agree where the message ends.
func (f *framing) plain(minor int) bool {
	if f.encodings > 0 {
		return f.encodings == 1 && f.chunked && f.lengths == 0 && minor == 1
	}
	return f.lengths <= 1 && !f.bad
}

// is reports whether a name equals another, which is ASCII, ignoring case.
func is(name []byte, other string) bool {
	if len(name) != len(other) {
		return false
	}
	for i, c := range name {
		o := other[i]
		if c != o && (c|0x20 != o|0x20 || c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return true
}

// decimal reads a number of digits alone.
func decimal(value []byte) (n int64, ok bool) {
	for _, c := range value {
		if c < '0' || c > '9' || n > (math.MaxInt64-9)/10 {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, len(value) > 0
}

// isToken reports whether b is a token, as methods and names are.
func isToken(b []byte) bool {
	for _, c := range b {
		if !tokens[c] {
			return false
		}
	}
	return len(b) > 0
}

// isTarget reports whether b has only characters that a target may have. Some clients don't
// escape what is not ASCII.
func isTarget(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c == 0x7f {
			return false
		}
	}
	return len(b) > 0
}

// isValue reports whether b may stand in a field's value.
func isValue(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// tokens are the characters of a token.
var tokens = func() (t [256]bool) {
	for c := range t {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' && c < 0x80
		t[c] = letter || c >= '0' && c <= '9' || c < 0x80 && bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), byte(c)) >= 0
	}
	return t
}()
