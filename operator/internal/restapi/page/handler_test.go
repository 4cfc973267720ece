package page_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"

	"dormouse.dev/dormouse/operator/internal/restapi/page"
)

func TestNobodySeesAnythingWithoutAToken(t *testing.T) {
	w := newWorld(t, page.Options{})
	w.Put(ready(1, 3))
	for _, path := range []string{"/", "/page/create", "/page/servers/1", "/page/servers/1/history"} {
		a := w.ask(http.MethodGet, path, nil)
		a.has(t, http.StatusSeeOther)
		a.hasNot(t, "arena")
		want := "/signin"
		if path != "/" {
			want += "?next=" + url.QueryEscape(path)
		}
		if got := a.Header.Get("Location"); got != want {
			t.Errorf("%s: redirected to %q, want %q", path, got, want)
		}
		b := w.ask(http.MethodGet, path, nil, cookie("wrong"))
		b.has(t, http.StatusUnauthorized, "You are signed out: the token is not one", `name="token"`)
		b.hasNot(t, "arena")
	}
	for _, path := range []string{"/page/live", "/page/servers/1/live"} {
		w.ask(http.MethodGet, path, nil).has(t, http.StatusUnauthorized, "You are signed out.")
		w.ask(http.MethodGet, path, nil, cookie("wrong")).has(t, http.StatusUnauthorized, "not one that this cluster made")
	}
	for _, path := range []string{"/page/create", "/page/servers/1/stop"} {
		w.ask(http.MethodPost, path, url.Values{"id": {"9"}, "game": {"g"}, "ram": {"1"}, "disk": {"1"}}).has(t, http.StatusSeeOther)
	}
	if asked := w.Asked(); len(asked) > 0 {
		t.Errorf("done without a token: %q", asked)
	}
}

func TestWhoPastesATokenIsSignedIn(t *testing.T) {
	w := newWorld(t, page.Options{Secure: true})
	w.Put(ready(1, 3))
	a := w.ask(http.MethodPost, "/signin", url.Values{"token": {" good-token\n"}, "next": {"/page/servers/1"}})
	a.has(t, http.StatusSeeOther)
	if got := a.Header.Get("Location"); got != "/page/servers/1" {
		t.Errorf("redirected to %q", got)
	}
	if got, want := a.Header.Get("Set-Cookie"), "dormouse-token=good-token; Path=/; HttpOnly; Secure; SameSite=Strict"; got != want {
		t.Errorf("cookie %q, want %q", got, want)
	}
	w.get("/page/servers/1").has(t, http.StatusOK, "alice", "203.0.113.9:7312", "3 of 16")

	out := w.post("/signout", nil)
	out.has(t, http.StatusSeeOther)
	if got := out.Header.Get("Set-Cookie"); !strings.HasPrefix(got, "dormouse-token=; ") || !strings.Contains(got, "Max-Age=0") {
		t.Errorf("signing out sets %q", got)
	}
}

func TestABadTokenIsASentence(t *testing.T) {
	w := newWorld(t, page.Options{})
	for token, want := range map[string]struct {
		status int
		words  string
	}{
		"":                          {http.StatusBadRequest, "Paste a token."},
		"wrong":                     {http.StatusUnauthorized, "not one that this cluster made"},
		"two words":                 {http.StatusBadRequest, "characters that no token has"},
		"a;b":                       {http.StatusBadRequest, "characters that no token has"},
		strings.Repeat("a", 3900):   {http.StatusBadRequest, "longer than a cookie may be"},
		strings.Repeat("a", 5<<10):  {http.StatusRequestEntityTooLarge, "larger than 4096 bytes"},
		"<script>alert(1)</script>": {http.StatusUnauthorized, "not one that this cluster made"},
	} {
		a := w.ask(http.MethodPost, "/signin", url.Values{"token": {token}})
		a.has(t, want.status, want.words)
		if got := a.Header.Get("Set-Cookie"); got != "" {
			t.Errorf("%.20s: sets %q", token, got)
		}
		if token != "" {
			a.hasNot(t, "value=\""+token, token)
		}
	}
}

func TestSignInGoesToNoOtherSite(t *testing.T) {
	w := newWorld(t, page.Options{})
	for _, next := range []string{
		"https://evil.example/", "//evil.example/", `/\evil.example`, `/page/\evil`, "javascript:alert(1)", "/servers", "/page/\r\nX: y", "evil",
	} {
		a := w.ask(http.MethodPost, "/signin", url.Values{"token": {"good-token"}, "next": {next}})
		if got := a.Header.Get("Location"); got != "/" {
			t.Errorf("next %q goes to %q", next, got)
		}
	}
}

func TestAProxysHeaderComesBeforeTheCookie(t *testing.T) {
	w := newWorld(t, page.Options{})
	a := w.ask(http.MethodGet, "/", nil, cookie("good-token"), header("Authorization", "bearer other-token"))
	a.has(t, http.StatusOK, "bob")
	a.hasNot(t, "alice", "Sign out")
	// A cookie that is good doesn't help a header that isn't, and pasting a token wouldn't either.
	b := w.ask(http.MethodGet, "/", nil, cookie("good-token"), bearer("wrong"))
	b.has(t, http.StatusUnauthorized, "not one that this cluster made")
	b.hasNot(t, `name="token"`)
}

func TestAllAnswersHaveTheirHeaders(t *testing.T) {
	w := newWorld(t, page.Options{})
	w.Put(ready(1, 3))
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
	for _, path := range []string{"/", "/signin", "/page/create", "/page/servers/1", "/page/servers/2", "/nothing", "/page/static/page.css", "/page/static/no"} {
		a := w.get(path)
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		} {
			if got := a.Header.Get(name); got != want {
				t.Errorf("%s: %s %q, want %q", path, name, got, want)
			}
		}
		if strings.HasSuffix(path, ".css") {
			continue
		}
		if got := a.Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control %q", path, got)
		}
		// The policy would have no use for either.
		a.hasNot(t, "style=\"", "<style", "onclick", "<script>")
		if strings.TrimSpace(a.body) == "" {
			t.Errorf("%s is blank", path)
		}
	}
}

func TestAPortHasAProtocolWhereOneIsGiven(t *testing.T) {
	w := newWorld(t, page.Options{})
	for words, ports := range map[string][]page.Port{
		`<dd data-f="ports">game 31234</dd>`:                 {{Name: "game", Number: 31234}},
		`<dd data-f="ports">game 31234/UDP, rcon 31235</dd>`: {{Name: "game", Number: 31234, Protocol: "UDP"}, {Name: "rcon", Number: 31235}},
		`<dd data-f="ports">31234/TCP</dd>`:                  {{Number: 31234, Protocol: "TCP"}},
	} {
		s := ready(1, 3)
		s.Ports = ports
		w.Put(s)
		w.get("/page/servers/1").has(t, http.StatusOK, words)
	}
}

func TestStaticFilesAreKeptByTheirHash(t *testing.T) {
	w := newWorld(t, page.Options{})
	body := w.ask(http.MethodGet, "/signin", nil).body
	for _, name := range []string{"page.css", "page.js", "icon.svg"} {
		_, rest, found := strings.Cut(body, "/page/static/"+name+"?v=")
		hash, _, _ := strings.Cut(rest, `"`)
		if !found || len(hash) != 16 {
			t.Errorf("%s has the hash %q on the page", name, hash)
		}
		a := w.ask(http.MethodGet, "/page/static/"+name+"?v="+hash, nil)
		a.has(t, http.StatusOK)
		if a.body == "" || !strings.Contains(a.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d bytes, Cache-Control %q", name, len(a.body), a.Header.Get("Cache-Control"))
		}
		// Another version's, in an upgrade.
		b := w.ask(http.MethodGet, "/page/static/"+name+"?v=other", nil, header("If-None-Match", a.Header.Get("ETag")))
		b.has(t, http.StatusNotModified)
		if got := b.Header.Get("Cache-Control"); got != "no-cache" {
			t.Errorf("%s of another version: Cache-Control %q", name, got)
		}
	}
}

func TestPostsOfOtherOriginsAreRefused(t *testing.T) {
	w := newWorld(t, page.Options{})
	w.Put(ready(1, 0))
	for _, path := range []string{"/signin", "/signout", "/page/create", "/page/servers/1/stop"} {
		for _, from := range []request{header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Site", "same-site"), header("Origin", "https://evil.example")} {
			a := w.ask(http.MethodPost, path, url.Values{"token": {"good-token"}}, cookie("good-token"), from)
			a.has(t, http.StatusForbidden, "sent by a page of another site")
			if got := a.Header.Get("Set-Cookie"); got != "" {
				t.Errorf("%s sets %q", path, got)
			}
		}
	}
	if asked := w.Asked(); len(asked) > 0 {
		t.Errorf("another site did %q", asked)
	}
}

func TestAnErrorThatNobodyExpectedIsLoggedAndNotShown(t *testing.T) {
	var logged strings.Builder
	w := newWorld(t, page.Options{Log: funcr.New(func(_, args string) { logged.WriteString(args) }, funcr.Options{})})
	w.Put(ready(1, 0))
	w.Fail = errors.New("dial 10.0.0.1: secret detail")
	for _, path := range []string{"/", "/page/servers/1", "/page/live", "/page/servers/1/live"} {
		logged.Reset()
		a := w.get(path)
		a.has(t, http.StatusInternalServerError, "Something went wrong that Dormouse did not expect")
		a.hasNot(t, "secret detail")
		_, number, _ := strings.Cut(a.body, "under the number ")
		if !strings.Contains(logged.String(), "secret detail") || !strings.Contains(logged.String(), number[:8]) || strings.Contains(logged.String(), "good-token") {
			t.Errorf("%s: logged %s", path, logged.String())
		}
	}
}
