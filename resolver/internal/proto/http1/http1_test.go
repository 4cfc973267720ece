package http1

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/internal/maintenance"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/test/hexfile"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// asleep is a client of a service that has probes.
func asleep() proto.Client {
	return proto.Client{Now: now, Service: &proto.Service{Name: "lobby", Probes: []proto.Probe{
		{Method: "GET", Path: "/healthz", Status: 200, Body: "asleep\n"},
		{
			Method: "GET", Path: "/agent", Headers: []proto.HeaderMatch{{Name: "User-Agent", Value: "kube-probe/", Prefix: true}, {Name: "X-Probe", Value: "yes"}},
			Status: 204, Fields: []proto.Header{{Name: "X-State", Value: "asleep"}},
		},
		{Method: "GET", PathPrefix: "/live", Status: 200},
		{Method: "GET", PathPrefix: "/below/", Status: 200},
		{Method: "OPTIONS", PathPrefix: "/", Status: 204},
		{Method: "GET", PathRegex: regexp.MustCompile("^/v[0-9]+/up$"), Status: 200},
		{Method: "GET", Path: "/by", Headers: []proto.HeaderMatch{{Name: "User-Agent", Regex: regexp.MustCompile("^(Bot|Monitor)/")}}, Status: 200},
		{Method: "GET", Path: "/robot", Headers: []proto.HeaderMatch{{Name: "User-Agent", Regex: regexp.MustCompile("UptimeRobot/")}}, Status: 200},
		{
			Method: "GET", Path: "/query", Status: 200,
			Query: []proto.QueryMatch{{Name: "full probe", Value: "a&b"}, {Name: "n", Regex: regexp.MustCompile("^[0-9]*$")}},
		},
		{Method: "POST", Path: "/status", Status: 503, Fields: []proto.Header{{Name: "content-type", Value: "application/json"}}, Body: "{}"},
	}}}
}

func up() proto.Client {
	c := asleep()
	c.Service.Phase = proto.Up
	return c
}

func recorded(t testing.TB, name string) string {
	t.Helper()
	b, err := hexfile.Read(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// response reads one whole answer, after which nothing may come.
func response(t testing.TB, answer []byte, method string) *http.Response {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(answer))
	got, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("reading %q: %v", answer, err)
	}
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatalf("reading the body of %q: %v", answer, err)
	}
	_ = got.Body.Close()
	if rest, _ := io.ReadAll(r); len(rest) > 0 {
		t.Fatalf("%q comes after the answer", rest)
	}
	got.Body = io.NopCloser(bytes.NewReader(body))
	return got
}

const healthz = "GET /healthz HTTP/1.1\r\nHost: lobby\r\n\r\n"

func TestTheFirstRequestDecides(t *testing.T) {
	const host, all = "Host: lobby\r\n", -1
	for name, c := range map[string]struct {
		head string
		want proto.Action
		// used is how much of it is answered.
		used int
	}{
		"a probe":                         {healthz, proto.Answer, len(healthz)},
		"a probe and what comes after it": {healthz + "GET / HT", proto.Answer, len(healthz)},
		"a probe with a query":            {"GET /healthz?full=1 HTTP/1.1\r\n" + host + "\r\n", proto.Answer, all},
		"a probe by HEAD":                 {"HEAD /healthz HTTP/1.1\r\n" + host + "\r\n", proto.Answer, all},
		"a probe with headers":            {"GET /agent HTTP/1.1\r\nuser-agent:  kube-probe/1.36 \r\nX-PROBE: yes\r\n\r\n", proto.Answer, all},
		"a probe that says it has no body": {
			"POST /status HTTP/1.1\r\nContent-Length: 0\r\n\r\n", proto.Answer, all,
		},
		"a probe that offers HTTP/2": {
			"GET /healthz HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", proto.Answer, all,
		},
		"curl's probe":                     {recorded(t, "curl_probe"), proto.Answer, all},
		"a prefix":                         {"GET /live HTTP/1.1\r\n\r\n", proto.Answer, all},
		"a prefix and a query":             {"GET /live?a=/b HTTP/1.1\r\n\r\n", proto.Answer, all},
		"below a prefix":                   {"GET /live/a/b HTTP/1.1\r\n\r\n", proto.Answer, all},
		"below a prefix with a slash":      {"GET /below/a HTTP/1.1\r\n\r\n", proto.Answer, all},
		"a prefix with a slash":            {"GET /below/ HTTP/1.1\r\n\r\n", proto.Answer, all},
		"any path":                         {"OPTIONS /x HTTP/1.1\r\n\r\n", proto.Answer, all},
		"a path that an expression fits":   {"GET /v12/up HTTP/1.1\r\n\r\n", proto.Answer, all},
		"a header that an expression fits": {"GET /by HTTP/1.1\r\nuser-agent: Monitor/1\r\n\r\n", proto.Answer, all},
		"an expression that fits any part": {
			"GET /robot HTTP/1.1\r\nUser-Agent: Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)\r\n\r\n", proto.Answer, all,
		},
		"a query's parameters":                {"GET /query?n=12&full%20probe=a%26b HTTP/1.1\r\n\r\n", proto.Answer, all},
		"a query's parameters, and one twice": {"GET /query?full+probe=a&n&full+probe=a%26b&x HTTP/1.1\r\n\r\n", proto.Answer, all},
		"a query with what can't be decoded":  {"GET /query?%zz=1&n=%zz&n=&full+probe=a%26b HTTP/1.1\r\n\r\n", proto.Answer, all},

		"a probe of HTTP/1.0":             {"GET /healthz HTTP/1.0\r\n\r\n", proto.Finish, 0},
		"a probe that ends":               {"GET /healthz HTTP/1.1\r\nConnection: x, Close\r\n\r\n", proto.Finish, 0},
		"a probe with a body":             {"POST /status HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", proto.Finish, 0},
		"a probe with half a body":        {"POST /status HTTP/1.1\r\nContent-Length: 2\r\n\r\n{", proto.Finish, 0},
		"a probe that asks for its body":  {"POST /status HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n", proto.Finish, 0},
		"a probe with chunks":             {"POST /status HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", proto.Finish, 0},
		"a probe of two lengths":          {"POST /status HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\n", proto.Finish, 0},
		"a probe of two equal lengths":    {"POST /status HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", proto.Finish, 0},
		"a probe of a strange length":     {"POST /status HTTP/1.1\r\nContent-Length: +0\r\n\r\n", proto.Finish, 0},
		"a probe of a list of lengths":    {"POST /status HTTP/1.1\r\nContent-Length: 0, 0\r\n\r\n", proto.Finish, 0},
		"a probe of an endless length":    {"POST /status HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n", proto.Finish, 0},
		"a probe of a length and chunks":  {"POST /status HTTP/1.1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", proto.Finish, 0},
		"a probe of a strange encoding":   {"POST /status HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n", proto.Finish, 0},
		"a probe by GET that has a body":  {"GET /healthz HTTP/1.1\r\nContent-Length: 30\r\n\r\n", proto.Finish, 0},
		"a probe whose length has a line": {"GET /healthz HTTP/1.1\r\nContent-Length:\r\n 5\r\n\r\n", proto.Hold, 0},

		"nothing":                      {"", proto.NeedMore, 0},
		"half a method":                {"GE", proto.NeedMore, 0},
		"half a line":                  {"GET /heal", proto.NeedMore, 0},
		"half a head":                  {"GET / HTTP/1.1\r\nHost: lob", proto.NeedMore, 0},
		"a head but for its last byte": {healthz[:len(healthz)-1], proto.NeedMore, 0},

		"beside a prefix":                        {"GET /lively HTTP/1.1\r\n\r\n", proto.Hold, 0},
		"above a prefix with a slash":            {"GET /below HTTP/1.1\r\n\r\n", proto.Hold, 0},
		"any path but an absolute target":        {"OPTIONS http://lobby/ HTTP/1.1\r\n\r\n", proto.Hold, 0},
		"any path but none":                      {"OPTIONS * HTTP/1.1\r\n\r\n", proto.Hold, 0},
		"a path that no expression fits":         {"GET /v12/up/ HTTP/1.1\r\n\r\n", proto.Hold, 0},
		"an expression that fits only the query": {"GET /?/v12/up HTTP/1.1\r\n\r\n", proto.Hold, 0},
		"a header that no expression fits":       {"GET /by HTTP/1.1\r\nuser-agent: a Monitor/1\r\n\r\n", proto.Hold, 0},
		"without a query":                        {"GET /query HTTP/1.1\r\n\r\n", proto.Hold, 0},
		"without a parameter":                    {"GET /query?n=1 HTTP/1.1\r\n\r\n", proto.Hold, 0},
		"with another parameter":                 {"GET /query?n=1&full+probe=a&b HTTP/1.1\r\n\r\n", proto.Hold, 0},
		"a parameter that no expression fits":    {"GET /query?n=a&full+probe=a%26b HTTP/1.1\r\n\r\n", proto.Hold, 0},
		"another path":                           {"GET / HTTP/1.1\r\n" + host + "\r\n", proto.Hold, 0},
		"a path below":                           {"GET /healthz/ HTTP/1.1\r\n" + host + "\r\n", proto.Hold, 0},
		"a path in capitals":                     {"GET /Healthz HTTP/1.1\r\n" + host + "\r\n", proto.Hold, 0},
		"a path in disguise":                     {"GET /health%7A HTTP/1.1\r\n" + host + "\r\n", proto.Hold, 0},
		"an absolute target":                     {"GET http://lobby/healthz HTTP/1.1\r\n" + host + "\r\n", proto.Hold, 0},
		"another method":                         {"PUT /healthz HTTP/1.1\r\n" + host + "\r\n", proto.Hold, 0},
		"HEAD of what is POST's":                 {"HEAD /status HTTP/1.1\r\n" + host + "\r\n", proto.Hold, 0},
		"a method in lower case":                 {"get /healthz HTTP/1.1\r\n" + host + "\r\n", proto.Hold, 0},
		"without a header":                       {"GET /agent HTTP/1.1\r\nUser-Agent: kube-probe/1.36\r\n\r\n", proto.Hold, 0},
		"with another value":                     {"GET /agent HTTP/1.1\r\nUser-Agent: kube-probe/1.36\r\nX-Probe: yes!\r\n\r\n", proto.Hold, 0},
		"with the prefix inside":                 {"GET /agent HTTP/1.1\r\nUser-Agent: a kube-probe/1.36\r\nX-Probe: yes\r\n\r\n", proto.Hold, 0},
		"with a value of two":                    {"GET /agent HTTP/1.1\r\nX-Probe: kube-probe/1.36\r\nUser-Agent: yes\r\n\r\n", proto.Hold, 0},
		"a WebSocket":                            {"GET /healthz HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", proto.Hold, 0},
		"CONNECT":                                {"CONNECT lobby:80 HTTP/1.1\r\n" + host + "\r\n", proto.Hold, 0},
		"an upload":                              {"PUT / HTTP/1.1\r\nContent-Length: 99\r\nExpect: 100-continue\r\n\r\n", proto.Hold, 0},
		"HTTP/2":                                 {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", proto.Hold, 0},
		"HTTP/2's first line":                    {"PRI * HTTP/2.0\r\n", proto.Hold, 0},
		"HTTP/0.9":                               {"GET /healthz\r\n", proto.Hold, 0},
		"TLS":                                    {recorded(t, "tls_hello"), proto.Hold, 0},
		"TLS's first byte":                       {"\x16", proto.Hold, 0},
		"HTTP/2 of gRPC":                         {recorded(t, "http2"), proto.Hold, 0},
		"SSH":                                    {"SSH-2.0-OpenSSH_9.2p1\r\n", proto.Hold, 0},
		"a line by hand":                         {"GET /healthz HTTP/1.1\n", proto.Hold, 0},
		"lines by hand":                          {"GET /healthz HTTP/1.1\r\nHost: lobby\n\n", proto.Hold, 0},
		"one line by hand":                       {"GET /healthz HTTP/1.1\r\nA: b\nC: d\r\n\r\n", proto.Hold, 0},
		"an end by hand":                         {"GET /healthz HTTP/1.1\r\nHost: lobby\r\n\n", proto.Hold, 0},
		"a line that goes on":                    {"GET /healthz HTTP/1.1\r\nHost: lobby\r\n more\r\n\r\n", proto.Hold, 0},
		"a space before the colon":               {"GET /healthz HTTP/1.1\r\nContent-Length : 5\r\n\r\n", proto.Hold, 0},
		"a bare carriage return":                 {"GET /healthz HTTP/1.1\r\nX: a\rContent-Length: 5\r\n\r\n", proto.Hold, 0},
		"a zero byte":                            {"GET /healthz HTTP/1.1\r\nX: a\x00\r\n\r\n", proto.Hold, 0},
		"a line without a name":                  {"GET /healthz HTTP/1.1\r\n: a\r\n\r\n", proto.Hold, 0},
		"a line without a colon":                 {"GET /healthz HTTP/1.1\r\nHost\r\n\r\n", proto.Hold, 0},
		"two spaces":                             {"GET  /healthz HTTP/1.1\r\n\r\n", proto.Hold, 0},
		"a line's end first":                     {"\r\n" + healthz, proto.Hold, 0},
		"an endless method":                      {strings.Repeat("A", 33), proto.Hold, 0},
		"an endless target":                      {"GET /" + strings.Repeat("a", proto.MaxHead), proto.Hold, 0},
		"an endless head":                        {"GET /healthz HTTP/1.1\r\nX: " + strings.Repeat("a", proto.MaxHead), proto.Hold, 0},
	} {
		v := Protocol{}.Inspect([]byte(c.head), asleep())
		if c.used == all {
			c.used = len(c.head)
		}
		if v.Action != c.want || v.Used != c.used {
			t.Errorf("%s: action %d after %d bytes, want %d after %d", name, v.Action, v.Used, c.want, c.used)
		}
		if answered := v.Action == proto.Answer || v.Action == proto.Finish; answered != (len(v.Answer) > 0) {
			t.Errorf("%s: action %d with the answer %q", name, v.Action, v.Answer)
		}
	}
	// A server that is up answers for itself.
	if v := (Protocol{}).Inspect([]byte(healthz), up()); v.Action != proto.Hold {
		t.Errorf("a probe of a server that is up: action %d", v.Action)
	}
}

func TestAProbeIsAnsweredAsTheSpecSays(t *testing.T) {
	common := http.Header{"Date": {"Sun, 01 Mar 2026 12:00:00 GMT"}}
	with := func(more http.Header) http.Header {
		all := common.Clone()
		maps.Copy(all, more)
		return all
	}
	text := http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "Content-Length": {"7"}}
	json := http.Header{"Content-Type": {"application/json"}, "Content-Length": {"2"}}
	for head, want := range map[string]struct {
		status int
		header http.Header
		closes bool
		body   string
	}{
		healthz:                          {200, with(text), false, "asleep\n"},
		"HEAD /healthz HTTP/1.1\r\n\r\n": {200, with(text), false, ""},
		"GET /healthz HTTP/1.0\r\n\r\n":  {200, with(text), true, "asleep\n"},
		"GET /agent HTTP/1.1\r\nUser-Agent: kube-probe/1\r\nX-Probe: yes\r\n\r\n":       {204, with(http.Header{"X-State": {"asleep"}}), false, ""},
		"POST /status HTTP/1.1\r\n\r\n":                                                 {503, with(json), false, "{}"},
		"POST /status HTTP/1.1\r\nContent-Length: 4\r\n\r\n":                            {503, with(json), true, "{}"},
		"POST /status HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nnone\r\n0\r\n": {503, with(json), true, "{}"},
	} {
		got := response(t, Protocol{}.Inspect([]byte(head), asleep()).Answer, head[:strings.Index(head, " ")])
		body, _ := io.ReadAll(got.Body)
		_ = got.Body.Close()
		if got.StatusCode != want.status || string(body) != want.body || got.Close != want.closes {
			t.Errorf("%q is answered %d with %q, closes %v; want %d with %q, closes %v", head, got.StatusCode, body, got.Close, want.status, want.body, want.closes)
		}
		if diff := cmp.Diff(want.header, got.Header); diff != "" {
			t.Errorf("%q is answered with headers (-want +got):\n%s", head, diff)
		}
	}
}

func TestWhoIsSentAwayIsToldInHTTP(t *testing.T) {
	waking := asleep()
	waking.Service.Phase, waking.Service.Since = proto.Waking, now.Add(-65*time.Second)
	waking.Service.Answers.Waking = "<b>soon</b>, {elapsed} so far"
	const browser = "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n"
	const text, page = "text/plain; charset=utf-8", "text/html; charset=utf-8"
	down := func(after time.Duration) proto.Client {
		c := asleep()
		c.Service.DownUntil = now.Add(after)
		return c
	}
	stopped := func() proto.Client {
		c := asleep()
		c.Service.DownUntil = maintenance.Stopped
		return c
	}
	words := "lobby is down for maintenance until " + now.Add(90*time.Second).UTC().Format("2006-01-02 15:04 UTC")
	for name, c := range map[string]struct {
		head   string
		why    proto.Reason
		client proto.Client
		status int
		retry  string
		kind   string
		// says is what is in the body, and not what isn't.
		says, not []string
	}{
		"held too long":          {healthz, proto.TimedOut, asleep(), 503, "5", text, []string{"lobby is waking up"}, []string{"<"}},
		"a queue that is full":   {healthz, proto.QueueFull, asleep(), 503, "5", text, []string{"lobby is waking up", "many are waiting"}, nil},
		"a service that is gone": {healthz, proto.RouteGone, asleep(), 503, "5", text, []string{"lobby is not available just now"}, nil},
		"nothing to wake":        {healthz, proto.NothingToWake, asleep(), 503, "60", text, []string{"lobby cannot be woken"}, []string{"is waking"}},
		"maintenance":            {healthz, proto.Maintenance, down(90 * time.Second), 503, "90", text, []string{words}, []string{"is waking", "wake"}},
		"maintenance for long":   {healthz, proto.Maintenance, down(3 * time.Hour), 503, "3600", text, []string{"down for maintenance until"}, nil},
		"maintenance till now":   {healthz, proto.Maintenance, down(time.Millisecond), 503, "1", text, []string{"down for maintenance until"}, nil},
		"stopped":                {healthz, proto.Maintenance, stopped(), 503, "3600", text, []string{"lobby is stopped."}, []string{"until"}},
		"maintenance just over":  {healthz, proto.Maintenance, down(0), 503, "1", text, []string{"lobby is down for maintenance."}, []string{"until"}},
		"a browser then":         {"GET / HTTP/1.1\r\n" + browser + "\r\n", proto.Maintenance, down(90 * time.Second), 503, "90", page, []string{words, `content="90"`}, []string{"is waking"}},
		"a source's rate":        {healthz, proto.SourceRate, asleep(), 429, "5", text, []string{"lobby is asked for too often"}, []string{"is waking"}},
		"a service's rate":       {healthz, proto.ServiceRate, waking, 429, "5", text, []string{"lobby is asked for too often"}, []string{"is waking"}},
		"a source's connections": {healthz, proto.SourceConnections, asleep(), 503, "5", text, []string{"many are waiting"}, nil},
		"who may not wake it":    {healthz, proto.Denied, asleep(), 403, "", text, []string{"may not wake this service"}, []string{"lobby", "again"}},
		"a browser": {
			"GET /<i>?a=1 HTTP/1.1\r\n" + browser + "\r\n", proto.TimedOut, waking, 503, "5", page,
			[]string{"lobby is waking up", `http-equiv="refresh" content="5"`, "&lt;b&gt;soon&lt;/b&gt;, 1m5s so far"},
			[]string{"<b>", "<i>", "{", "http://", "https://", "src=", "href=", "url("},
		},
		"a browser whose service is not seen to wake": {
			"GET / HTTP/1.1\r\n" + browser + "\r\n", proto.TimedOut, asleep(), 503, "5", page, []string{"lobby is waking up"}, []string{"Asleep", "0s"},
		},
		"a browser and nothing to wake": {"GET / HTTP/1.1\r\n" + browser + "\r\n", proto.NothingToWake, asleep(), 503, "60", page, []string{"cannot be woken", `content="60"`}, []string{"is waking"}},
		"a browser that asks too often": {"GET / HTTP/1.1\r\n" + browser + "\r\n", proto.SourceRate, asleep(), 429, "5", page, []string{"asked for too often", `content="5"`}, []string{"is waking"}},
		"a browser that is denied":      {"GET / HTTP/1.1\r\n" + browser + "\r\n", proto.Denied, asleep(), 403, "", text, []string{"may not wake"}, []string{"<", "again"}},
		"HEAD that is denied":           {"HEAD / HTTP/1.1\r\n\r\n", proto.Denied, asleep(), 403, "", text, nil, []string{"wake"}},
		"half a request, denied":        {"GET / HTTP/1.1\r\nHost", proto.Denied, asleep(), 0, "", "", nil, nil},
		"TLS that is denied":            {recorded(t, "tls_hello"), proto.Denied, asleep(), 0, "", "", nil, nil},
		"a browser's form":              {"POST / HTTP/1.1\r\n" + browser + "\r\n", proto.TimedOut, asleep(), 503, "5", text, []string{"lobby is waking up"}, []string{"<"}},
		"a browser's script":            {"GET / HTTP/1.1\r\nAccept: application/json\r\n\r\n", proto.TimedOut, asleep(), 503, "5", text, nil, []string{"<"}},
		"HEAD":                          {"HEAD / HTTP/1.1\r\n\r\n", proto.TimedOut, asleep(), 503, "5", text, nil, []string{"lobby"}},
		"a WebSocket":                   {"GET / HTTP/1.1\r\n" + browser + "Upgrade: websocket\r\n\r\n", proto.TimedOut, asleep(), 503, "5", text, nil, []string{"<"}},
		"an upload":                     {"PUT / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab", proto.TimedOut, asleep(), 503, "5", text, nil, nil},
		"half a request":                {"GET / HTTP/1.1\r\nHost", proto.Unfinished, asleep(), 408, "", "", nil, nil},
		"half a line":                   {"GE", proto.Unfinished, asleep(), 408, "", "", nil, nil},
		"half a request, held":          {"GET / HTTP/1.1\r\nHost", proto.TimedOut, asleep(), 0, "", "", nil, nil},
		"nothing":                       {"", proto.Unfinished, asleep(), 0, "", "", nil, nil},
		"TLS":                           {recorded(t, "tls_hello"), proto.TimedOut, asleep(), 0, "", "", nil, nil},
		"HTTP/2 of gRPC":                {recorded(t, "http2"), proto.TimedOut, asleep(), 0, "", "", nil, nil},
		"garbage":                       {"\x00\x01\x02", proto.QueueFull, asleep(), 0, "", "", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			answer := Protocol{}.Refusal(c.why, []byte(c.head), c.client)
			if c.status == 0 {
				if answer != nil {
					t.Fatalf("got %q, want a plain end", answer)
				}
				return
			}
			method, _, _ := strings.Cut(c.head, " ")
			got := response(t, answer, method)
			body, _ := io.ReadAll(got.Body)
			_ = got.Body.Close()
			if got.StatusCode != c.status || !got.Close || got.Header.Get("Retry-After") != c.retry || got.Header.Get("Content-Type") != c.kind {
				t.Fatalf("got %q", answer)
			}
			for _, want := range c.says {
				if !bytes.Contains(body, []byte(want)) {
					t.Errorf("%q isn't in %q", want, body)
				}
			}
			for _, not := range c.not {
				// Styles have braces.
				_, page, found := bytes.Cut(body, []byte("</style>"))
				if !found {
					page = body
				}
				if bytes.Contains(page, []byte(not)) {
					t.Errorf("%q is in %q", not, page)
				}
			}
		})
	}
}

func TestJudgingWhatWakesAllocatesNothing(t *testing.T) {
	c := asleep()
	c.Scratch = make([]byte, 0, 4096)
	head := []byte("GET /agent HTTP/1.1\r\nHost: lobby\r\nUser-Agent: kube-probe/1\r\n\r\n")
	if n := testing.AllocsPerRun(100, func() { Protocol{}.Inspect(head, c) }); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}
