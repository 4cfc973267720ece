// Package resolvers asks resolver pods what they serve and whom they carry. One
// answer about all services serves everybody who wants to know at about the same
// time, so that the number of questions doesn't grow with the number of services.
// Who needs to know how it is right now asks about one service only.
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
)

const (
	// askTimeout bounds one question, which takes two requests.
	askTimeout = time.Second
	// A pod that didn't answer is not asked again for minRest after that, and
	// for twice as long each time up to maxRest, so that a lost node slows
	// nothing down.
	minRest = 2 * time.Second
	maxRest = 10 * time.Second
	// maxBody bounds an answer: 20,000 routes of a few hundred bytes.
	maxBody = 16 << 20
)

// View is what a resolver pod said of itself.
type View struct {
	// FirstAsked is when the pod was first asked.
	FirstAsked time.Time
	// Asked is when the question was sent.
	Asked time.Time
	// Answered is when the pod last answered; zero if it never did.
	Answered time.Time
	// Err says why the last question had no answer; nil if it had.
	Err      error
	Started  time.Time
	Routes   map[string]informerapi.Route    // by the ElasticService's UID
	Sessions map[string]informerapi.Sessions // likewise
	// ClockSkew is what to add to the pod's times to have the operator's.
	ClockSkew time.Duration

	// rest is for how long, and restUntil until when, a pod that didn't answer
	// is left alone.
	rest      time.Duration
	restUntil time.Time
}

// Observer asks resolver pods.
type Observer struct {
	http  *http.Client
	port  int
	token *tokenfile.File

	flight singleflight.Group
	mu     sync.Mutex
	views  map[string]View // by address
}

// NewObserver makes an Observer that asks on the given port, with a token.
func NewObserver(port int, token *tokenfile.File) *Observer {
	return &Observer{
		http: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute},
		},
		port:  port,
		token: token,
		views: map[string]View{},
	}
}

// Keep forgets every pod whose address is not in addresses.
func (o *Observer) Keep(addresses map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for a := range o.views {
		if !addresses[a] {
			delete(o.views, a)
		}
	}
}

// View gives what the pod at an address said no longer ago than maxAge of all
// services, and asks it otherwise. Where it is asked again and again it is asked
// ahead of time, so that nobody waits for its answer.
func (o *Observer) View(ctx context.Context, address string, maxAge time.Duration) View {
	called := time.Now()
	for {
		known := o.known(address)
		fresh := !known.Asked.IsZero() && !known.Asked.Before(called.Add(-maxAge))
		if resting := called.Before(known.restUntil); fresh || resting {
			if !resting && known.Asked.Before(called.Add(-maxAge/2)) {
				// It may outlive the one who is the reason for it.
				o.flight.DoChan(address, o.question(context.WithoutCancel(ctx), address))
			}
			return known
		}
		// A question that was under way already may be older than maxAge allows:
		// look again then.
		_, err, _ := o.flight.Do(address, o.question(ctx, address))
		if err != nil && ctx.Err() != nil {
			return View{Err: ctx.Err()}
		}
	}
}

// question asks a pod about all services and remembers what came of it.
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

// ViewOf asks the pod at an address about one service, by its ElasticService's
// UID. The question is sent after the call; a pod that is left alone is not
// asked.
func (o *Observer) ViewOf(ctx context.Context, address, uid string) View {
	known := o.known(address)
	if time.Now().Before(known.restUntil) {
		return known
	}
	v, err := o.ask(ctx, address, uid)
	switch {
	case ctx.Err() != nil:
		return View{Err: ctx.Err()}
	case err != nil:
		return o.failed(address, v.Asked, err)
	}
	if !known.FirstAsked.IsZero() {
		v.FirstAsked = known.FirstAsked
	}
	return v
}

func (o *Observer) known(address string) View {
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

// failed remembers that a pod did not answer, beside what it said before.
func (o *Observer) failed(address string, asked time.Time, err error) View {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.views[address]
	if known.FirstAsked.IsZero() {
		known.FirstAsked = asked
	}
	known.Asked, known.Err = asked, err
	known.rest = min(max(2*known.rest, minRest), maxRest)
	known.restUntil = time.Now().Add(known.rest)
	o.views[address] = known
	return known
}

// ask asks about one service, or about all when uid is empty.
func (o *Observer) ask(ctx context.Context, address, uid string) (View, error) {
	asked := time.Now()
	var routes informerapi.RoutesResponse
	var sessions informerapi.SessionsResponse
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// Routes first: a client that came after the phase in them was seen counts
	// in the sessions, or makes a wake call.
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
		Routes:     make(map[string]informerapi.Route, len(routes.Routes)),
		Sessions:   make(map[string]informerapi.Sessions, len(sessions.Services)),
		ClockSkew:  now.Sub(sessions.Now),
	}
	for _, r := range routes.Routes {
		v.Routes[r.UID] = r
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
