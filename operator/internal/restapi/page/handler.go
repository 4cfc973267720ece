package page

import (
	"context"
	"net/http"
	"time"

	"github.com/go-logr/logr"
)

const (
	// maxBody is for all forms: a token is their largest field.
	maxBody = 4 << 10
	// answerWithin is for all that isn't a stream.
	answerWithin = 10 * time.Second
	// logsWithin leaves time for the rest of a server's page.
	logsWithin = 2 * time.Second
)

// Options are what an administrator chooses. Those that are zero have a default.
type Options struct {
	// Secure sets the cookie as Secure where the page itself isn't served by TLS, and a proxy in
	// front of it is.
	Secure bool
	// Audience is whom a token has to be for, where the page is to tell. Default: nobody.
	Audience string
	// PageSize is how many servers a page lists. Default: 50, at most 200.
	PageSize int
	// LogLines is how many lines of a log a page has. Default: 200, at most 2000.
	LogLines int
	// Streams is how many live streams there are at once, and CallerStreams how many of them a
	// caller has. Defaults: 1000 and 12.
	Streams, CallerStreams int
	// StreamFor is how long a stream lives. Its browser then asks again, with a token that has to be
	// good still. Default: 5m.
	StreamFor time.Duration
	// Heartbeat is how often an idle stream shows that it lives. Default: 15s.
	Heartbeat time.Duration
	// Log has what callers aren't told.
	Log logr.Logger
	// Now is the time. Default: time.Now.
	Now func() time.Time
}

func (o Options) defaulted() Options {
	o.PageSize = min(or(o.PageSize, 50), 200)
	o.LogLines = min(or(o.LogLines, 200), 2000)
	o.Streams = or(o.Streams, 1000)
	o.CallerStreams = or(o.CallerStreams, 12)
	o.StreamFor = or(o.StreamFor, 5*time.Minute)
	o.Heartbeat = or(o.Heartbeat, 15*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// or is a value, or its default.
func or[T int | time.Duration](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}

// page answers all requests.
type page struct {
	servers Servers
	options Options
	log     logr.Logger
	streams streams
	now     func() time.Time
}

// New returns the handler of "/", "/signin", "/signout" and "/page/". It needs the whole path of a
// request. Its streams end with their requests' contexts, which are the server's BaseContext's:
// cancel that one before Shutdown. Of the server's timeouts, ReadHeaderTimeout and IdleTimeout
// don't touch streams; they set their own deadlines for each write. The server's WriteTimeout gives
// the next answer of a stream's connection another one.
func New(servers Servers, options Options) http.Handler {
	options = options.defaulted()
	p := &page{
		servers: servers, options: options, log: options.Log, now: options.Now,
		streams: streams{most: options.Streams, ofCaller: options.CallerStreams},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page/static/{file}", p.static)
	mux.HandleFunc("GET /signin", p.showSignIn)
	mux.HandleFunc("POST /signin", p.signIn)
	mux.HandleFunc("POST /signout", p.signOut)

	mux.HandleFunc("GET /{$}", p.page(p.showList))
	mux.HandleFunc("GET /page/create", p.page(p.showCreate))
	mux.HandleFunc("POST /page/create", p.page(p.create))
	mux.HandleFunc("GET /page/servers/{id}", p.page(p.showServer))
	mux.HandleFunc("GET /page/servers/{id}/history", p.page(p.showHistory))
	mux.HandleFunc("POST /page/servers/{id}/{action}", p.page(p.act))
	mux.HandleFunc("GET /page/live", p.live(p.liveList))
	mux.HandleFunc("GET /page/servers/{id}/live", p.live(p.liveServer))
	mux.HandleFunc("/", p.notFound)

	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.fail(w, r, nil, &Refusal{http.StatusForbidden, "This was sent by a page of another site, so nothing was done. Use this page's own buttons."})
	}))
	return headers(crossOrigin.Handler(bounded(mux)))
}

// policy allows this origin's own script, style, images, streams and forms, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// headers sets what all answers have. The static files allow themselves to be kept.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// signedIn is a request whose caller has signed in.
type signedIn struct {
	*http.Request
	who Caller
	// proxied is whether the token is that of a proxy in front of the page, who alone can sign out.
	proxied bool
}

// page makes a handler of one that needs a caller, and whose error is shown as a page.
func (p *page) page(handle func(http.ResponseWriter, *signedIn) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
		defer cancel()
		who, err := p.callerOf(r.WithContext(ctx))
		if err != nil {
			p.askToSignIn(w, r, err)
			return
		}
		if err := handle(w, who); err != nil {
			p.fail(w, r, who, p.refusalOf(r, err))
		}
	}
}

func (p *page) notFound(w http.ResponseWriter, r *http.Request) {
	p.fail(w, r, nil, &Refusal{http.StatusNotFound, "There is no such page."})
}
