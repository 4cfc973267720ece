package http1

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"strconv"
	"strings"
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

const (
	// soonest is when the page loads itself again at the earliest, in seconds.
	soonest = 2
	// maxMessage bounds the page's message in bytes.
	maxMessage = 1024
)

//go:embed page.html
var pageSource string

// pagePolicy allows the page's own style, by its hash, and nothing else: the page needs nothing
// more, and what would be smuggled into it gets nothing.
var pagePolicy = func() string {
	_, rest, _ := strings.Cut(pageSource, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	hash := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; base-uri 'none'; form-action 'none'"
}()

// page is the page for a person. It has nothing from the request in it.
func page(c proto.Client, state string, retry int) string {
	own := c.Service.Page
	if own == nil {
		own = &proto.Page{}
	}
	waking, title, message, takes := state == wakingUp, "", "", ""
	if waking {
		title = own.Title
		takes = usually(own.Takes)
	}
	switch {
	case waking && own.Message != "":
		message = string(c.AppendWaking(nil, own.Message, maxMessage))
	case c.Service.Phase == proto.Waking:
		message = string(c.AppendMessage(nil, maxMessage))
	}
	return strings.NewReplacer(
		"{title}", html.EscapeString(cmp.Or(title, c.Service.Name+" "+state)),
		"{message}", html.EscapeString(message),
		"{takes}", html.EscapeString(takes),
		"{seconds}", strconv.Itoa(retry),
	).Replace(pageSource)
}

// usually says how long a wake takes; empty where that isn't known.
func usually(takes time.Duration) string {
	const sentence = "This usually takes about %d %s."
	switch seconds := int64((takes + time.Second - 1) / time.Second); {
	case seconds <= 0:
		return ""
	case seconds == 1:
		return fmt.Sprintf(sentence, 1, "second")
	case seconds < 120:
		return fmt.Sprintf(sentence, seconds, "seconds")
	default:
		return fmt.Sprintf(sentence, (seconds+59)/60, "minutes")
	}
}

// nextLook is when a page loads itself again, in seconds: retryAfter, or earlier where the
// service should be up by then, or is up at any moment.
func nextLook(c proto.Client) int {
	takes := time.Duration(0)
	if c.Service.Page != nil {
		takes = c.Service.Page.Takes
	}
	left := takes - c.Elapsed()
	if takes == 0 || left < -takes {
		return retryAfter // nobody knows
	}
	return int(min(max(left+time.Second-1, soonest*time.Second), retryAfter*time.Second) / time.Second)
}

// wantsPage reports whether a person waits for the answer: browsers ask for HTML where they are
// going to show it.
func wantsPage(r *Request) bool {
	return (string(r.Method) == "GET" || string(r.Method) == "HEAD") && !r.upgrades && r.each(func(name, value []byte) bool {
		if !is(name, "Accept") {
			return false
		}
		for accepted := range bytes.SplitSeq(value, []byte(",")) {
			kind, _, _ := bytes.Cut(accepted, []byte(";"))
			if is(bytes.Trim(kind, " \t"), "text/html") {
				return true
			}
		}
		return false
	})
}

// opensPage reports whether a browser is about to show the answer as a page of its own. That is
// told from scripts, which would take a page for their answer, by what the browser says of the
// request (Fetch Metadata), and otherwise by what it likes best. Browsers say the former only
// where they trust the way to the server, such as over TLS.
func opensPage(r *Request) bool {
	likes, script := false, false
	r.each(func(name, value []byte) bool {
		switch {
		case is(name, "Accept"):
			likes = likes || likesHTMLBest(value)
		case is(name, "Sec-Fetch-Mode"):
			script = script || !is(value, "navigate")
		case is(name, "Sec-Fetch-Dest"):
			script = script || !is(value, "document")
		case is(name, "X-Requested-With"), is(name, "HX-Request"):
			script = true
		}
		return script
	})
	return string(r.Method) == "GET" && likes && !script && !r.upgrades
}

// likesHTMLBest reports whether text/html is the first in an Accept, and nothing after it is
// liked better. All browsers write it so where they open a page.
func likesHTMLBest(accept []byte) bool {
	first, others, _ := bytes.Cut(accept, []byte(","))
	kind, quality := accepted(first)
	if !is(kind, "text/html") || quality == 0 {
		return false
	}
	for other := range bytes.SplitSeq(others, []byte(",")) {
		if _, q := accepted(other); len(other) > 0 && q > quality {
			return false
		}
	}
	return true
}

// accepted reads one of the types in an Accept, and how much it is liked, in thousandths.
func accepted(b []byte) (kind []byte, quality int) {
	kind, rest, _ := bytes.Cut(b, []byte(";"))
	quality = 1000
	for parameter := range bytes.SplitSeq(rest, []byte(";")) {
		name, value, _ := bytes.Cut(parameter, []byte("="))
		if is(bytes.Trim(name, " \t"), "q") {
			quality = thousandths(bytes.Trim(value, " \t"))
		}
	}
	return bytes.Trim(kind, " \t"), quality
}

// thousandths reads a quality, such as 0.8; 0 where it can't be read.
func thousandths(b []byte) (n int) {
	whole, part, _ := bytes.Cut(b, []byte("."))
	if string(whole) == "1" {
		return 1000
	}
	if string(whole) != "0" || len(part) > 3 {
		return 0
	}
	scale := 100
	for _, c := range part {
		if c < '0' || c > '9' {
			return 0
		}
		n += scale * int(c-'0')
		scale /= 10
	}
	return n
}
