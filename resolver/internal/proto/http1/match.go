package http1

import (
	"bytes"
	"net/url"
	"regexp"
	"strings"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

const (
	// maxText is the longest text that an expression is tried on, in bytes: the time that it takes
	// grows with the text.
	maxText = 1 << 10
	// maxTried bounds all the texts together that expressions are tried on for one request.
	maxTried = 8 << 10
)

// matcher compares one request with probes.
type matcher struct {
	*Request
	// left is how many more bytes expressions may be tried on.
	left int
}

// find returns the first probe that a request matches; nil: none.
func find(probes []proto.Probe, r *Request) *proto.Probe {
	m := matcher{r, maxTried}
	for i := range probes {
		p := &probes[i]
		method := string(r.Method) == p.Method || p.Method == "GET" && string(r.Method) == "HEAD"
		if method && m.hasPath(p) && m.hasHeaders(p.Headers) && m.hasQuery(p.Query) {
			return p
		}
	}
	return nil
}

// fits reports whether an expression fits a text. One that may not be tried doesn't.
func (m *matcher) fits(expression *regexp.Regexp, text []byte) bool {
	if len(text) > min(maxText, m.left) {
		return false
	}
	m.left -= len(text)
	return expression.Match(text)
}

// hasPath reports whether a request has the path that a probe asks for, as it was sent.
func (m *matcher) hasPath(p *proto.Probe) bool {
	path := m.Path()
	switch {
	case p.PathRegex != nil:
		return m.fits(p.PathRegex, path)
	case p.PathPrefix != "":
		rest, ok := bytes.CutPrefix(path, []byte(strings.TrimSuffix(p.PathPrefix, "/")))
		whole := len(rest) == 0 && !strings.HasSuffix(p.PathPrefix, "/")
		return ok && (whole || bytes.HasPrefix(rest, []byte("/")))
	}
	return string(path) == p.Path
}

// hasHeaders reports whether a request has all of the headers, each in one of its fields.
func (m *matcher) hasHeaders(headers []proto.HeaderMatch) bool {
	for i := range headers {
		h := &headers[i]
		if !m.each(func(name, value []byte) bool {
			if !is(name, h.Name) {
				return false
			}
			if h.Regex != nil {
				return m.fits(h.Regex, value)
			}
			return string(value) == h.Value || h.Prefix && bytes.HasPrefix(value, []byte(h.Value))
		}) {
			return false
		}
	}
	return true
}

// hasQuery reports whether a request's query has all of the parameters, each once at least. What
// can't be decoded is no parameter.
func (m *matcher) hasQuery(params []proto.QueryMatch) bool {
	if len(params) == 0 {
		return true
	}
	_, query, _ := bytes.Cut(m.Target, []byte("?"))
	for i := range params {
		p := &params[i]
		found := false
		for pair := range strings.SplitSeq(string(query), "&") {
			name, value, _ := strings.Cut(pair, "=")
			name, err := url.QueryUnescape(name)
			if err != nil || name != p.Name {
				continue
			}
			value, err = url.QueryUnescape(value)
			if err != nil {
				continue
			}
			if found = value == p.Value; p.Regex != nil {
				found = m.fits(p.Regex, []byte(value))
			}
			if found {
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}
