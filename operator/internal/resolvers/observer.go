// Package resolvers asks resolver pods what they serve and which clients they have. One answer
// about all services is shared by all who ask at about the same time, so the number of requests
// doesn't grow with the number of services. A caller that needs the current state asks about
// one service only.
package resolvers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/tokenfile"
	"dormouse.dev/dormouse/operator/internal/slim"
)

const (
	// askTimeout bounds one question, which takes two requests.
	askTimeout = time.Second
	// A pod that didn't answer is not asked again for minRest, and for twice as long each time
	// up to maxRest, so that a lost node slows nothing down.
	minRest = 2 * time.Second
	maxRest = 10 * time.Second
	// few is how many questions about one service each a pod gets within a second at most. Who
	// asks more gets an answer about all services, which with 10,000 of them costs both sides as
	// much as hundreds about one.
	few = 20
	// maxBody bounds an answer: 20,000 routes of a few hundred bytes.
	maxBody = 16 << 20
)

// View is a resolver pod's own report.
type View struct {
	// FirstAsked is when the pod was first asked.
	FirstAsked time.Time
	// Asked is when the question was sent.
	Asked time.Time
	// Answered is when the pod last answered; zero if it never did.
	Answered time.Time
	// Err is why the last question had no answer; nil if it had one.
	Err      error
	Started  time.Time
	Routes   map[string]Route                // by the ElasticService's UID
	Sessions map[string]informerapi.Sessions // by the ElasticService's UID
	// ClockSkew must be added to the pod's times to get the operator's.
	ClockSkew time.Duration

	// rest is for how long, and restUntil until when, a pod that didn't answer
	// is left alone.
	rest      time.Duration
	restUntil time.Time
}

// Route is what is kept of a pod's report about a service: with thousands of services, of each pod, no more
// than is read.
type Route struct {
	// Phase is the phase that the pod has seen last, and PhaseSince when it began; nil where that isn't
	// known.
	Phase      string
	PhaseSince *time.Time
	Ports      []Port
}

// Port is a resolver port of a service.
type Port struct {
	Port int32
	// Listening reports whether the pod takes clients there, and Error why it does not.
	Listening bool
	// Front is set for a port that ElasticServices share.
	Front bool
	Error string
}

func routeOf(r *informerapi.Route) Route {
	kept := Route{Phase: slim.String(r.Phase), PhaseSince: r.PhaseSince, Ports: make([]Port, len(r.Ports))}
	for i, p := range r.Ports {
		kept.Ports[i] = Port{Port: p.Port, Listening: p.Listening, Front: p.Front != "", Error: p.Error}
	}
	return kept
}

// Observer asks resolver pods.
type Observer struct {
	http  *http.Client
	port  int
	token *tokenfile.File

	flight singleflight.Group
	mu     sync.Mutex
	views  map[string]View  // by address
	asking map[string]asked // by address
}

// asked is how often a pod's report about one service was wanted since a time.
type asked struct {
	since time.Time
	times int
	// alone is when the pod was last asked about each service alone, by the ElasticService's
	// UID, and before is the same for the time before since.
	alone, before map[string]time.Time
}

// period is for how long questions are counted together. No maxAge is longer.
const period = time.Second

// next begins a new period if the last one is over.
func (a asked) next(now time.Time) asked {
	if now.Sub(a.since) < period {
		return a
	}
	return asked{since: now, alone: map[string]time.Time{}, before: a.alone}
}

// NewObserver makes an Observer that asks on the given port, with a token.
func NewObserver(port int, token *tokenfile.File) *Observer {
	return &Observer{
		http: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute},
		},
		port:   port,
		token:  token,
		views:  map[string]View{},
		asking: map[string]asked{},
	}
}

// Keep forgets every pod whose address is not in addresses.
func (o *Observer) Keep(addresses map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for a := range o.views {
		if !addresses[a] {
			delete(o.views, a)
			delete(o.asking, a)
		}
	}
}

// View returns the pod's report about all services if it isn't older than maxAge, and asks the
// pod otherwise. A pod that is asked regularly is asked ahead of time, so that nobody waits for
// its answer.
func (o *Observer) View(ctx context.Context, address string, maxAge time.Duration) View {
	called := time.Now()
	for {
		view := o.lastView(address)
		fresh := !view.Asked.IsZero() && !view.Asked.Before(called.Add(-maxAge))
		if resting := called.Before(view.restUntil); fresh || resting {
			if !resting && view.Asked.Before(called.Add(-maxAge/2)) {
				// The question may outlive the caller that caused it.
				o.flight.DoChan(address, o.question(context.WithoutCancel(ctx), address))
			}
			return view
		}
		// The answer to a question that was already under way may be older than maxAge allows:
		// ask again then.
		_, err, _ := o.flight.Do(address, o.question(ctx, address))
		if err != nil && ctx.Err() != nil {
			return View{Err: ctx.Err()}
		}
	}
}

// ViewFor returns a pod's report that isn't older than maxAge, which is a second at most, and
// not older than the last one about that service alone. It has one service at least, by its
// ElasticService's UID. Where few ask, the pod is asked about that service alone.
func (o *Observer) ViewFor(ctx context.Context, address, uid string, maxAge time.Duration) View {
	now := time.Now()
	view, alone, many := o.want(address, uid, now)
	switch {
	case view.Asked.Before(alone) && now.Sub(alone) < maxAge:
		return o.ViewOf(ctx, address, uid)
	case many:
		return o.View(ctx, address, maxAge)
	case view.Asked.Before(now.Add(-maxAge)):
		return o.ViewOf(ctx, address, uid)
	}
	return view
}

// want is the last report about all services, when the pod was last asked about one alone, and
// whether many have wanted a report lately.
func (o *Observer) want(address, uid string, now time.Time) (last View, alone time.Time, many bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.asking[address].next(now)
	a.times++
	o.asking[address] = a
	alone, ok := a.alone[uid]
	if !ok {
		alone = a.before[uid]
	}
	return o.views[address], alone, a.times > few
}

// question asks a pod about all services and remembers the result.
func (o *Observer) question(ctx context.Context, address string) func() (any, error) {
	return func() (any, error) {
		v, err := o.ask(ctx, address, "")
		if err != nil {
			o.failed(address, v.Asked, err)
		} else {
			o.keep(address, v)
		}
		return nil, ctx.Err()
	}
}

// ViewOf asks the pod at an address about one service, by its ElasticService's UID. The
// question is sent after the call. A pod that is left alone is not asked.
func (o *Observer) ViewOf(ctx context.Context, address, uid string) View {
	view := o.lastView(address)
	if time.Now().Before(view.restUntil) {
		return view
	}
	v, err := o.ask(ctx, address, uid)
	switch {
	case ctx.Err() != nil:
		return View{Err: ctx.Err()}
	case err != nil:
		return o.failed(address, v.Asked, err)
	}
	return o.answered(address, uid, v)
}

// answered remembers that a pod answered a question about one service.
func (o *Observer) answered(address, uid string, v View) View {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.asking[address].next(v.Asked)
	a.alone[uid] = v.Asked
	o.asking[address] = a
	all := o.views[address]
	if all.FirstAsked.IsZero() {
		all.FirstAsked = v.FirstAsked
	}
	v.FirstAsked = all.FirstAsked
	all.Answered = v.Answered
	if all.Err != nil {
		// What it said of all services before is outdated.
		all = View{FirstAsked: all.FirstAsked, Answered: all.Answered}
	}
	o.views[address] = all
	return v
}

func (o *Observer) lastView(address string) View {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.views[address]
}

// keep remembers an answer about all services.
func (o *Observer) keep(address string, v View) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if first := o.views[address].FirstAsked; !first.IsZero() {
		v.FirstAsked = first
	}
	o.views[address] = v
}

// failed remembers that a pod did not answer, and keeps its last report.
func (o *Observer) failed(address string, asked time.Time, err error) View {
	o.mu.Lock()
	defer o.mu.Unlock()
	view := o.views[address]
	if view.FirstAsked.IsZero() {
		view.FirstAsked = asked
	}
	view.Asked, view.Err = asked, err
	if time.Now().Before(view.restUntil) {
		// Many ask at once about one service each, and all fail together.
		o.views[address] = view
		return view
	}
	view.rest = min(max(2*view.rest, minRest), maxRest)
	view.restUntil = time.Now().Add(view.rest)
	o.views[address] = view
	return view
}

// ask asks about one service, or about all when uid is empty.
func (o *Observer) ask(ctx context.Context, address, uid string) (View, error) {
	asked := time.Now()
	var routes informerapi.RoutesResponse
	var sessions informerapi.SessionsResponse
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// Routes first: a client that came after the phase in them was seen is among the sessions,
	// or makes a wake call.
	err := o.get(bounded, address, informerapi.RoutesPath, uid, &routes)
	if err == nil {
		err = o.get(bounded, address, informerapi.SessionsPath, uid, &sessions)
	}
	if err != nil {
		return View{Asked: asked}, err
	}
	now := time.Now()
	v := View{
		FirstAsked: asked,
		Asked:      asked,
		Answered:   now,
		Started:    sessions.Started,
		Routes:     make(map[string]Route, len(routes.Routes)),
		Sessions:   make(map[string]informerapi.Sessions, len(sessions.Services)),
		ClockSkew:  now.Sub(sessions.Now),
	}
	for i := range routes.Routes {
		v.Routes[routes.Routes[i].UID] = routeOf(&routes.Routes[i])
	}
	for _, s := range sessions.Services {
		v.Sessions[s.UID] = s
	}
	return v, nil
}

func (o *Observer) get(ctx context.Context, address, path, uid string, into any) (err error) {
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(address, strconv.Itoa(o.port)), Path: path}
	if uid != "" {
		u.RawQuery = url.Values{informerapi.UIDQuery: {uid}}.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("build the request for %s: %w", u.String(), err)
	}
	token, err := o.token.Get()
	if err != nil {
		return fmt.Errorf("read the token for resolvers: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := o.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask the resolver: %w", err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s answered %s, want 200", u.String(), res.Status)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxBody)).Decode(into); err != nil {
		return fmt.Errorf("decode the answer of %s: %w", u.String(), err)
	}
	return nil
}
