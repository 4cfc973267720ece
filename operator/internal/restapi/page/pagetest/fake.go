// Package pagetest has Servers in memory, for tests of the page.
package pagetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"dormouse.dev/dormouse/operator/internal/restapi/page"
)

// Caller is who has signed in, by the name.
type Caller string

// Name is the caller's name.
func (c Caller) Name() string { return string(c) }

// Fake is servers in memory.
type Fake struct {
	// Tokens are who may sign in, by their tokens.
	Tokens map[string]Caller
	// Fail is returned by Get and List where it is set.
	Fail error

	mu      sync.Mutex
	servers map[int64]*one
	changes hub[page.Change]
	// asked are the calls that change something.
	asked []string
}

var _ page.Servers = (*Fake)(nil)

// one is a server with what it had.
type one struct {
	page.Server
	log  []string
	logs hub[string]
	// followed are the logs that are being read.
	followed []*io.PipeWriter
	events   []page.Event
	news     hub[page.Event]
	wakes    []page.Wake
	samples  []page.Sample
}

// Asked are the calls that changed something, such as "stop 3 force=false by alice".
func (f *Fake) Asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

// Put adds a server, or changes it.
func (f *Fake) Put(s page.Server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(s)
}

func (f *Fake) put(s page.Server) {
	if f.servers == nil {
		f.servers = map[int64]*one{}
	}
	if f.servers[s.ID] == nil {
		f.servers[s.ID] = &one{}
	}
	f.servers[s.ID].Server = s
	f.changes.send(page.Change{Server: s})
}

// Delete takes a server away.
func (f *Fake) Delete(id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.servers, id)
	f.changes.send(page.Change{Server: page.Server{ID: id}, Gone: true})
}

// Change changes a server that is there.
func (f *Fake) Change(id int64, change func(*page.Server)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.servers[id]; o != nil {
		s := o.Server
		change(&s)
		f.put(s)
	}
}

// Log has a server's game write lines.
func (f *Fake) Log(id int64, lines ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.servers[id]
	o.log = append(o.log, lines...)
	for _, line := range lines {
		o.logs.send(line)
	}
}

// Break breaks the connections by which a server's log is read. Its game goes on.
func (f *Fake) Break(id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.servers[id]
	for _, out := range o.followed {
		_ = out.CloseWithError(io.ErrUnexpectedEOF)
	}
	o.followed = nil
}

// Happen adds an event, or changes the one with its ID.
func (f *Fake) Happen(id int64, e page.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.servers[id]
	o.events = slices.DeleteFunc(o.events, func(other page.Event) bool { return other.ID == e.ID })
	o.events = slices.Insert(o.events, 0, e)
	o.news.send(e)
}

// Past sets what a server's page has of the past.
func (f *Fake) Past(id int64, wakes []page.Wake, samples []page.Sample) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.servers[id].wakes, f.servers[id].samples = wakes, samples
}

// SignIn knows the callers of Tokens.
func (f *Fake) SignIn(_ context.Context, token string) (page.Caller, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if who, found := f.Tokens[token]; found {
		return who, nil
	}
	return nil, page.Refuse(http.StatusUnauthorized, "The token is not one that this cluster made, or its time is over.")
}

// Forget ends a token's time.
func (f *Fake) Forget(token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.Tokens, token)
}

// List lists by IDs; a Next is the last one's.
func (f *Fake) List(_ context.Context, _ page.Caller, q page.Query) (page.Listing, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var l page.Listing
	if f.Fail != nil {
		return l, f.Fail
	}
	after, _ := strconv.ParseInt(q.After, 10, 64)
	ids := make([]int64, 0, len(f.servers))
	for id, o := range f.servers {
		words := strings.ToLower(o.Name + " " + o.Game + " " + o.State)
		if id > after && strings.Contains(words, strings.ToLower(q.Text)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids[:min(len(ids), q.Limit)] {
		l.Servers = append(l.Servers, f.servers[id].Server)
	}
	if len(ids) > q.Limit {
		l.Next = strconv.FormatInt(ids[q.Limit-1], 10)
	}
	return l, nil
}

// of finds a server. The caller has the lock.
func (f *Fake) of(id int64) (*one, error) {
	if f.Fail != nil {
		return nil, f.Fail
	}
	if o := f.servers[id]; o != nil {
		return o, nil
	}
	return nil, page.Refuse(http.StatusNotFound, "There is no server %d.", id)
}

// Get returns a server.
func (f *Fake) Get(_ context.Context, _ page.Caller, id int64) (page.Server, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, err := f.of(id)
	if err != nil {
		return page.Server{}, err
	}
	return o.Server, nil
}

// Games are two.
func (*Fake) Games(context.Context, page.Caller) ([]string, error) {
	return []string{"minetest", "openarena"}, nil
}

// Create makes a stopped server.
func (f *Fake) Create(_ context.Context, who page.Caller, wish page.Wish) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.servers[wish.ID] != nil {
		return page.Refuse(http.StatusConflict, "There is a server %d already. Choose another number.", wish.ID)
	}
	f.note(who, "create %d %s ram=%d disk=%d", wish.ID, wish.Game, wish.RAMGB, wish.DiskGB)
	s := page.Server{
		ID: wish.ID, Name: fmt.Sprintf("%s-%d", wish.Game, wish.ID), Game: wish.Game, State: "Stopped",
		RAM: fmt.Sprintf("%d GB", wish.RAMGB), Capacity: 8, Created: time.Now(),
		Address: "203.0.113.9", Ports: []page.Port{{Name: "game", Number: 7000 + int(wish.ID%1000), Protocol: "UDP"}},
	}
	if wish.DiskGB > 0 {
		s.Disk = fmt.Sprintf("%d GB", wish.DiskGB)
	}
	f.put(s)
	return nil
}

func (f *Fake) note(who page.Caller, format string, args ...any) {
	f.asked = append(f.asked, fmt.Sprintf(format, args...)+" by "+who.Name())
}

// Start has a server become Starting, until Ready is called.
func (f *Fake) Start(_ context.Context, who page.Caller, id int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, err := f.of(id)
	if err != nil {
		return err
	}
	f.note(who, "start %d", id)
	f.boot(o.Server)
	return nil
}

// boot starts a server. The caller has the lock.
func (f *Fake) boot(s page.Server) {
	s.Running, s.Asleep, s.State, s.Since = true, false, "Starting", time.Now()
	f.put(s)
}

// Ready has a server that is Starting become Ready.
func (f *Fake) Ready(id int64) {
	none := 0
	f.Change(id, func(s *page.Server) { s.State, s.Players = "Ready", &none })
	f.Happen(id, page.Event{ID: "ready", When: time.Now(), Reason: "Ready", Message: "The game takes players."})
}

// Stop stops a server that nobody plays on, or any with force.
func (f *Fake) Stop(_ context.Context, who page.Caller, id int64, force bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, err := f.of(id)
	if err != nil {
		return err
	}
	if o.Players != nil && *o.Players > 0 && !force {
		return page.Refuse(http.StatusConflict, "%d play on server %d. It was not stopped.", *o.Players, id)
	}
	f.note(who, "stop %d force=%t", id, force)
	s := o.Server
	s.Running, s.Asleep, s.State, s.Players = false, false, "Stopped", nil
	// The game's log ends with it.
	o.log = nil
	o.logs.end()
	f.put(s)
	return nil
}

// Wake boots a server.
func (f *Fake) Wake(_ context.Context, who page.Caller, id int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, err := f.of(id)
	if err != nil {
		return err
	}
	f.note(who, "wake %d", id)
	f.boot(o.Server)
	return nil
}

// KeepAwake notes until when.
func (f *Fake) KeepAwake(_ context.Context, who page.Caller, id int64, howLong time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, err := f.of(id)
	if err != nil {
		return err
	}
	f.note(who, "keepawake %d %s", id, howLong)
	s := o.Server
	s.KeptAwakeUntil = time.Time{}
	if howLong > 0 {
		s.KeptAwakeUntil = time.Now().Add(howLong)
	}
	f.put(s)
	return nil
}

// Logs are the lines of Log.
func (f *Fake) Logs(ctx context.Context, _ page.Caller, id int64, lines int, follow bool) (io.ReadCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, err := f.of(id)
	if err != nil {
		return nil, err
	}
	if o.Asleep || (!o.Running && len(o.log) == 0) {
		return nil, page.Refuse(http.StatusConflict, "There is no log: the server does not run.")
	}
	var past bytes.Buffer
	for _, line := range o.log[max(0, len(o.log)-lines):] {
		past.WriteString(line + "\n")
	}
	if !follow {
		return io.NopCloser(&past), nil
	}
	in, out := io.Pipe()
	news := o.logs.subscribe(ctx)
	o.followed = append(o.followed, out)
	go func() {
		_, err := out.Write(past.Bytes())
		for line := range news {
			if err == nil {
				_, err = io.WriteString(out, line+"\n")
			}
		}
		_ = out.Close()
	}()
	return in, nil
}

// Events are those of Happen.
func (f *Fake) Events(_ context.Context, _ page.Caller, id int64) ([]page.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, err := f.of(id)
	if err != nil {
		return nil, err
	}
	return slices.Clone(o.events), nil
}

// Wakes are those of Past.
func (f *Fake) Wakes(_ context.Context, _ page.Caller, id int64) ([]page.Wake, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, err := f.of(id)
	if err != nil {
		return nil, err
	}
	return o.wakes, nil
}

// Players are those of Past.
func (f *Fake) Players(_ context.Context, _ page.Caller, id int64) ([]page.Sample, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, err := f.of(id)
	if err != nil {
		return nil, err
	}
	return o.samples, nil
}

// Watch sends what changes.
func (f *Fake) Watch(ctx context.Context, _ page.Caller) (<-chan page.Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes.subscribe(ctx), nil
}

// WatchEvents sends what happens.
func (f *Fake) WatchEvents(ctx context.Context, _ page.Caller, id int64) (<-chan page.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, err := f.of(id)
	if err != nil {
		return nil, err
	}
	return o.news.subscribe(ctx), nil
}

// hub sends to all who subscribed. One who doesn't read is let go.
type hub[T any] struct {
	mu  sync.Mutex
	all map[chan T]bool
}

const hubAhead = 4096

func (h *hub[T]) subscribe(ctx context.Context) <-chan T {
	c := make(chan T, hubAhead)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[chan T]bool{}
	}
	h.all[c] = true
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.drop(c)
	})
	return c
}

func (h *hub[T]) drop(c chan T) {
	if h.all[c] {
		delete(h.all, c)
		close(c)
	}
}

// end lets all go.
func (h *hub[T]) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.all {
		h.drop(c)
	}
}

func (h *hub[T]) send(what T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.all {
		select {
		case c <- what:
		default:
			h.drop(c)
		}
	}
}
