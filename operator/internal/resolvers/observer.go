// Package resolvers asks resolver pods what they serve and which clients they have. A pod is asked a few
// questions at a time. Who comes meanwhile shares the next one: so what is asked grows with those who ask, and
// not with the number of services.
package resolvers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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
	// atOnce is how many questions a pod is asked at a time.
	atOnce = 4
	// maxAge is how old an answer about all services may be.
	maxAge = 200 * time.Millisecond
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
	// most is how many questions a pod is asked at a time.
	most int

	mu   sync.Mutex
	pods map[string]*asked // by address
}

// asked is a pod that is asked.
type asked struct {
	// first is when it was first asked, and answered when it answered last.
	first, answered time.Time
	// failed is why it didn't answer; nil if it did. Until restUntil it is left alone, which was for rest.
	failed    error
	rest      time.Duration
	restUntil time.Time
	// all is the last answer about all services, while somebody asks about all.
	all View
	// ahead is the last question about services whose turn was to come.
	ahead *question
	// alone is set once it answered about all where it was asked about several: an older one does, and is
	// asked about each alone.
	alone bool
	// next is the next question; nil: nobody has come since the last one was sent. asking is how many are
	// under way.
	next   *question
	asking int
}

// question is what several who came at about the same time ask a pod.
type question struct {
	// uids are the services that it is about, unless all is set.
	uids map[string]struct{}
	all  bool
	// sent is when it was sent; zero: it wasn't yet.
	sent time.Time
	// done is closed once there is the answer.
	done   chan struct{}
	answer View
}

// NewObserver makes an Observer that asks on the given port, with a token.
func NewObserver(port int, token *tokenfile.File) *Observer {
	return &Observer{
		http: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     &http.Transport{MaxIdleConnsPerHost: atOnce, IdleConnTimeout: time.Minute},
		},
		port:  port,
		token: token,
		most:  atOnce,
		pods:  map[string]*asked{},
	}
}

// Keep forgets every pod whose address is not in addresses.
func (o *Observer) Keep(addresses map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for a := range o.pods {
		if !addresses[a] {
			delete(o.pods, a)
		}
	}
}

// View is a pod's report about some services, by their ElasticServices' UIDs; without any it says only that the
// pod answers. The question is sent after the call. More than MaxUIDs are asked about with all others, and that
// answer may be maxAge old. A pod that is left alone is not asked, and Err says why.
func (o *Observer) View(ctx context.Context, address string, uids ...string) View {
	o.mu.Lock()
	q := o.join(ctx, address, uids)
	o.mu.Unlock()
	return q.wait(ctx)
}

// wait waits for the answer.
func (q *question) wait(ctx context.Context) View {
	select {
	case <-q.done:
		return q.answer
	case <-ctx.Done():
		return View{Err: ctx.Err()}
	}
}

// podAt is a pod that is asked. The lock is held.
func (o *Observer) podAt(address string) *asked {
	p := o.pods[address]
	if p == nil {
		p = &asked{first: time.Now()}
		o.pods[address] = p
	}
	return p
}

// join takes services into the pod's next question, and gives it, or one that has its answer. The lock is held.
func (o *Observer) join(ctx context.Context, address string, uids []string) *question {
	now, p := time.Now(), o.podAt(address)
	all := len(uids) > informerapi.MaxUIDs
	switch {
	case now.Before(p.restUntil):
		return answered(p.silent())
	case all && now.Sub(p.all.Asked) < maxAge:
		return answered(p.all)
	case p.next == nil:
		p.next = &question{uids: map[string]struct{}{}, done: make(chan struct{})}
		if p.asking < o.most {
			p.asking++
			go o.askOn(context.WithoutCancel(ctx), address, p)
		}
	}
	q := p.next
	for _, uid := range uids {
		q.uids[uid] = struct{}{}
	}
	q.all = q.all || all || len(q.uids) > informerapi.MaxUIDs
	return q
}

func answered(v View) *question {
	q := &question{done: make(chan struct{}), answer: v}
	close(q.done)
	return q
}

// silent is the report of a pod that doesn't answer.
func (p *asked) silent() View {
	return View{FirstAsked: p.first, Answered: p.answered, Err: p.failed}
}

// askOn asks a pod question after question, until nobody has any more.
func (o *Observer) askOn(ctx context.Context, address string, p *asked) {
	for q, queries := o.following(p); q != nil; q, queries = o.following(p) {
		v, err := o.askEach(ctx, address, queries)
		q.answer = o.note(p, q, v, err)
		close(q.done)
	}
}

// following is a pod's next question, with its queries. Nobody joins it any more.
func (o *Observer) following(p *asked) (q *question, queries []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if q, p.next = p.next, nil; q == nil {
		p.asking--
		return nil, nil
	}
	q.sent = time.Now()
	return q, q.queries(p.alone)
}

// note remembers how a question ended, and gives its answer.
func (o *Observer) note(p *asked, q *question, v View, err error) View {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		p.failed, p.all, p.ahead = err, View{}, nil
		if now := time.Now(); !now.Before(p.restUntil) { // else others have failed together with it
			p.rest = min(max(2*p.rest, minRest), maxRest)
			p.restUntil = now.Add(p.rest)
		}
		if next := p.next; next != nil {
			next.answer, p.next = p.silent(), nil
			close(next.done)
		}
		return p.silent()
	}
	p.answered, p.failed, p.rest, p.restUntil = v.Answered, nil, 0, time.Time{}
	v.FirstAsked = p.first
	switch {
	case q.all:
		p.all = v
	case time.Since(p.all.Asked) > maxAge:
		p.all = View{}
	}
	if !q.all && len(q.uids) > 1 && len(v.Routes) > len(q.uids) {
		p.alone = true
	}
	if p.ahead == q && (q.all || p.alone) {
		p.ahead = nil // it has thousands of services
	}
	return v
}

// askEach sends the queries of a question, and gives what they are answered together.
func (o *Observer) askEach(ctx context.Context, address string, queries []string) (View, error) {
	all, err := o.ask(ctx, address, queries[0])
	for _, query := range queries[1:] {
		if err != nil {
			break
		}
		var one View
		if one, err = o.ask(ctx, address, query); err == nil {
			maps.Copy(all.Routes, one.Routes)
			maps.Copy(all.Sessions, one.Sessions)
		}
	}
	return all, err
}

// ask sends a query.
func (o *Observer) ask(ctx context.Context, address, query string) (View, error) {
	asked := time.Now()
	var routes informerapi.RoutesResponse
	var sessions informerapi.SessionsResponse
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// Routes first: a client that came after the phase in them was seen is among the sessions,
	// or makes a wake call.
	err := o.get(bounded, address, informerapi.RoutesPath, query, &routes)
	if err == nil {
		err = o.get(bounded, address, informerapi.SessionsPath, query, &sessions)
	}
	if err != nil {
		return View{}, err
	}
	now := time.Now()
	v := View{
		Asked:     asked,
		Answered:  now,
		Started:   sessions.Started,
		Routes:    make(map[string]Route, len(routes.Routes)),
		Sessions:  make(map[string]informerapi.Sessions, len(sessions.Services)),
		ClockSkew: now.Sub(sessions.Now),
	}
	for i := range routes.Routes {
		v.Routes[routes.Routes[i].UID] = routeOf(&routes.Routes[i])
	}
	for _, s := range sessions.Services {
		v.Sessions[s.UID] = s
	}
	return v, nil
}

// get asks for a path. Its errors are in statuses, which users read: they say the same each time the same happens,
// and not which services the question was about.
func (o *Observer) get(ctx context.Context, address, path, query string, into any) (err error) {
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(address, strconv.Itoa(o.port)), Path: path, RawQuery: query}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("build the request for %s: %w", path, innermost(err))
	}
	token, err := o.token.Get()
	if err != nil {
		return fmt.Errorf("read the token for resolvers: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := o.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask the resolver: %w", innermost(err))
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s answered %s, want 200", path, res.Status)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxBody)).Decode(into); err != nil {
		return fmt.Errorf("decode the answer to GET %s: %w", path, innermost(err))
	}
	return nil
}

// innermost leaves out what net and net/http put around an error: the question, the pod's address and the
// operator's own port.
func innermost(err error) error {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err
}

// nobody is no service's UID.
const nobody = "-"

// queries are the parts of a question's URLs that say which services it is about: one, or one for each service
// alone.
func (q *question) queries(alone bool) []string {
	uids := slices.Sorted(maps.Keys(q.uids))
	of := func(key string, uids ...string) string { return url.Values{key: {strings.Join(uids, ",")}}.Encode() }
	switch {
	case q.all:
		return []string{""}
	case len(uids) == 0:
		return []string{of(informerapi.UIDQuery, nobody)}
	case len(uids) > 1 && !alone:
		return []string{of(informerapi.UIDsQuery, uids...)}
	}
	queries := make([]string, len(uids))
	for i, uid := range uids {
		queries[i] = of(informerapi.UIDQuery, uid)
	}
	return queries
}
