package http1

import (
	"bytes"
	"net/url"
	"strings"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

// find returns the first probe that a request matches; nil: none.
func find(probes []proto.Probe, r *Request) *proto.Probe {
	for i := range probes {
		p := &probes[i]
		method := string(r.Method) == p.Method || p.Method == "GET" && string(r.Method) == "HEAD"
		if method && hasPath(r, p) && hasHeaders(r, p.Headers) && hasQuery(r, p.Query) {
			return p
		}
	}
	return nil
}

// hasPath reports whether a request has the path that a probe asks for, as it was sent.
func hasPath(r *Request, p *proto.Probe) bool {
	path := r.Path()
	switch {
	case p.PathRegex != nil:
		return p.PathRegex.Match(path)
	case p.PathPrefix != "":
		rest, ok := bytes.CutPrefix(path, []byte(strings.TrimSuffix(p.PathPrefix, "/")))
		whole := len(rest) == 0 && !strings.HasSuffix(p.PathPrefix, "/")
		return ok && (whole || bytes.HasPrefix(rest, []byte("/")))
	}
	return string(path) == p.Path
}

// hasHeaders reports whether a request has all of the headers, each in one of its fields.
func hasHeaders(r *Request, headers []proto.HeaderMatch) bool {
	for i := range headers {
		h := &headers[i]
		if !r.each(func(name, value []byte) bool {
			if !is(name, h.Name) {
				return false
			}
			if h.Regex != nil {
				return h.Regex.Match(value)
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
func hasQuery(r *Request, params []proto.QueryMatch) bool {
	if len(params) == 0 {
		return true
	}
	_, query, _ := bytes.Cut(r.Target, []byte("?"))
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
				found = p.Regex.MatchString(value)
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
