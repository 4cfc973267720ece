package http1

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

// What browsers send that open a page: Chromium and Safari, and Firefox.
const (
	chromium = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7\r\n"
	firefox  = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n"
	document = "Sec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: none\r\n"
)

// paged is a client of a service that has a waiting page.
func paged(p proto.Page) proto.Client {
	c := asleep()
	c.Service.Page = &p
	return c
}

func TestOnlyABrowserThatOpensAPageIsShownOne(t *testing.T) {
	for name, c := range map[string]struct {
		line, fields string
		want         bool
	}{
		"Chromium over TLS":                 {"GET /a?b=c HTTP/1.1", chromium + document, true},
		"Firefox without TLS":               {"GET / HTTP/1.1", firefox, true},
		"HTTP/1.0":                          {"GET / HTTP/1.0", firefox, true},
		"HTML alone":                        {"GET / HTTP/1.1", "accept:TEXT/HTML\r\n", true},
		"an offer of HTTP/2":                {"GET / HTTP/1.1", firefox + "Connection: Upgrade\r\nUpgrade: h2c\r\n", true},
		"HEAD":                              {"HEAD / HTTP/1.1", firefox, false},
		"a form":                            {"POST / HTTP/1.1", firefox + document, false},
		"no Accept":                         {"GET / HTTP/1.1", document, false},
		"curl":                              {"GET / HTTP/1.1", "Accept: */*\r\n", false},
		"JSON":                              {"GET / HTTP/1.1", "Accept: application/json\r\n", false},
		"JSON before HTML":                  {"GET / HTTP/1.1", "Accept: application/json, text/html\r\n", false},
		"JSON rather than HTML":             {"GET / HTTP/1.1", "Accept: text/html;q=0.5, application/json\r\n", false},
		"HTML rather than JSON":             {"GET / HTTP/1.1", "Accept: text/html;level=1, application/json;q=0.9\r\n", true},
		"no HTML":                           {"GET / HTTP/1.1", "Accept: text/html;q=0, */*;q=0\r\n", false},
		"a quality that can't be read":      {"GET / HTTP/1.1", "Accept: text/html;q=high\r\n", false},
		"a fetch of a script":               {"GET / HTTP/1.1", firefox + "Sec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty\r\n", false},
		"a frame":                           {"GET / HTTP/1.1", firefox + "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n", false},
		"a script that says what it is":     {"GET / HTTP/1.1", "Accept: text/html, */*; q=0.01\r\nX-Requested-With: XMLHttpRequest\r\n", false},
		"a part of a page":                  {"GET / HTTP/1.1", firefox + "HX-Request: true\r\n", false},
		"server-sent events":                {"GET / HTTP/1.1", "Accept: text/event-stream\r\n", false},
		"a WebSocket":                       {"GET / HTTP/1.1", firefox + "Connection: Upgrade\r\nUpgrade: websocket\r\n", false},
		"a request that isn't plain HTTP/1": {"GET / HTTP/1.1", firefox + "A : b\r\n", false},
	} {
		head := []byte(c.line + "\r\nHost: lobby\r\n" + c.fields + "\r\n")
		if v := (Protocol{}).Inspect(head, paged(proto.Page{})); v.Action != proto.Hold || v.Brief != c.want {
			t.Errorf("%s: action %d, brief %v; want it held, brief %v", name, v.Action, v.Brief, c.want)
		}
		if v := (Protocol{}).Inspect(head, asleep()); v.Brief {
			t.Errorf("%s: held briefly where there is no waiting page", name)
		}
	}
	probe := []byte("GET /healthz HTTP/1.1\r\n" + firefox + document + "\r\n")
	if v := (Protocol{}).Inspect(probe, paged(proto.Page{})); v.Action != proto.Answer {
		t.Errorf("a probe that a browser makes: action %d", v.Action)
	}
}

func TestTheWaitingPageSaysWhatTheServiceIsAndHowLongItTakes(t *testing.T) {
	waking := func(since time.Duration, p proto.Page) proto.Client {
		c := paged(p)
		c.Service.Phase, c.Service.Since = proto.Waking, now.Add(-since)
		return c
	}
	const default5 = "5"
	for name, c := range map[string]struct {
		client proto.Client
		why    proto.Reason
		retry  string
		says   []string
		not    []string
	}{
		"no settings":       {paged(proto.Page{}), proto.WaitingPage, default5, []string{"<title>lobby is waking up</title>", "<h1>lobby is waking up</h1>", "<p></p>"}, []string{"usually", "so far"}},
		"a service's state": {waking(65*time.Second, proto.Page{}), proto.WaitingPage, default5, []string{"Waking up, 1m5s so far."}, nil},
		"texts of its own": {
			waking(7*time.Second, proto.Page{Title: "Tea <time> & more", Message: `{elapsed} of "it" {title} <script>`}), proto.WaitingPage, default5,
			[]string{"<title>Tea &lt;time&gt; &amp; more</title>", "<h1>Tea &lt;time&gt; &amp; more</h1>", "<p>7s of &#34;it&#34; {title} &lt;script&gt;</p>"},
			[]string{"lobby", "<script"},
		},
		"a wake that isn't seen yet": {paged(proto.Page{Message: "{elapsed} so far"}), proto.WaitingPage, default5, []string{"<p>0s so far</p>"}, nil},
		"a wake that takes long":     {waking(time.Second, proto.Page{Takes: 40 * time.Second}), proto.WaitingPage, "5", []string{"This usually takes about 40 seconds."}, nil},
		"a wake that takes minutes":  {waking(time.Second, proto.Page{Takes: 150 * time.Second}), proto.WaitingPage, "5", []string{"This usually takes about 3 minutes."}, nil},
		"a wake that is quick":       {paged(proto.Page{Takes: 3200 * time.Millisecond}), proto.WaitingPage, "4", []string{"This usually takes about 4 seconds."}, nil},
		"a wake of a moment":         {paged(proto.Page{Takes: 300 * time.Millisecond}), proto.WaitingPage, "2", []string{"This usually takes about 1 second."}, nil},
		"a wake that is due":         {waking(11*time.Second, proto.Page{Takes: 10 * time.Second}), proto.WaitingPage, "2", nil, nil},
		"a wake that hangs":          {waking(21*time.Second, proto.Page{Takes: 10 * time.Second}), proto.WaitingPage, default5, nil, nil},
		"nothing to wake":            {paged(proto.Page{Title: "Tea", Message: "soon", Takes: time.Second}), proto.NothingToWake, "60", []string{"<h1>lobby cannot be woken up just now</h1>"}, []string{"Tea", "soon", "usually"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := response(t, Protocol{}.Refusal(c.why, []byte("GET /<i> HTTP/1.1\r\n"+firefox+"\r\n"), c.client), "GET")
			if got.StatusCode != 503 || !got.Close || got.Header.Get("Cache-Control") != "no-store" || got.Header.Get("Retry-After") != c.retry {
				t.Errorf("got %d with %v, closes %v; want 503, and %s s to the next try", got.StatusCode, got.Header, got.Close, c.retry)
			}
			all, _ := io.ReadAll(got.Body)
			_ = got.Body.Close()
			body := string(all)
			c.says = append(c.says, `<html lang="en">`, `<div role="status">`, `<meta http-equiv="refresh" content="`+c.retry+`">`)
			for _, want := range c.says {
				if !strings.Contains(body, want) {
					t.Errorf("%q isn't in %q", want, body)
				}
			}
			for _, not := range append(c.not, "<i>", "src=", "href=", "url(", "style=") {
				if strings.Contains(body, not) {
					t.Errorf("%q is in %q", not, body)
				}
			}
			_, rest, _ := strings.Cut(body, "<style>")
			style, _, _ := strings.Cut(rest, "</style>")
			hash := sha256.Sum256([]byte(style))
			policy := got.Header.Get("Content-Security-Policy")
			if !strings.Contains(policy, "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+"'") || strings.Contains(policy, "unsafe") {
				t.Errorf("the policy is %q", policy)
			}
		})
	}
}

func TestTellingBrowsersAllocatesNothing(t *testing.T) {
	c := paged(proto.Page{})
	head := []byte("GET / HTTP/1.1\r\nHost: lobby\r\n" + chromium + document + "\r\n")
	if n := testing.AllocsPerRun(100, func() { Protocol{}.Inspect(head, c) }); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}
