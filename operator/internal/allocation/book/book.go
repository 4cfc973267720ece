package book

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

const (
	// maxPending bounds how many Allocations of a namespace wait.
	maxPending = 1000
	// maxViews bounds how many different questions of a namespace are kept. Another one costs a look
	// at all of the namespace's Servers.
	maxViews = 64
	// withdrawnFor is how long a Server isn't given that its Fleet was about to drain or delete, and
	// hasn't.
	withdrawnFor = 10 * time.Second
	// noteAfter is how long an Allocation waits before its status says so: most have an answer sooner.
	noteAfter = time.Second
	// keptFor is how long an Allocation is kept that is Refused or Expired.
	keptFor = time.Hour
)

// Hooks are told what happens. They are called while the book is locked: they must not call it, nor
// wait.
type Hooks struct {
	// Decided is called for an Allocation that there is something to write of.
	Decided func(types.NamespacedName)
	// Held is called for a Server that is held since just now, by what was written, or isn't any more.
	Held func(types.NamespacedName)
	// Unused is called for an ElasticService whose target no Allocation uses any more.
	Unused func(types.NamespacedName)
	// Wakes is called when Wakes has something, or Tick is to be called earlier.
	Wakes func()
}

// Book is the book. Its methods may be called by any goroutine.
type Book struct {
	now   func() time.Time
	hooks Hooks

	mu sync.Mutex
	// unbounded is set while a new leader goes through those who wait.
	unbounded bool
	leads     bool
	// gone are the Allocations that were deleted while a new leader lists them; nil: none does.
	gone   map[types.UID]struct{}
	spaces map[string]*space
	nodes  map[string]map[string]string
	due    dues
	// count orders Allocations as they came, and questions by when they were asked.
	count   int
	pending int
}

// New makes a Book.
func New(now func() time.Time, hooks Hooks) *Book {
	return &Book{now: now, hooks: hooks, spaces: map[string]*space{}, nodes: map[string]map[string]string{}}
}

// space is a namespace.
type space struct {
	name    string
	servers map[string]*server
	// owned are the Servers of Fleets and GameTypes, by kind/name.
	owned   map[string]map[*server]struct{}
	entries map[string]*entry
	views   map[string]*view
	// waiting are the Allocations that wait, those that came first first.
	waiting []*entry
	targets map[string]*targetState
	// targetOf is the target of each ElasticService.
	targetOf map[string]string
}

func (b *Book) space(name string) *space {
	s := b.spaces[name]
	if s == nil {
		s = &space{
			name: name, servers: map[string]*server{}, owned: map[string]map[*server]struct{}{}, entries: map[string]*entry{},
			views: map[string]*view{}, targets: map[string]*targetState{}, targetOf: map[string]string{},
		}
		b.spaces[name] = s
	}
	return s
}

// leave forgets a namespace of which nothing is left.
func (b *Book) leave(s *space) {
	if len(s.entries)+len(s.servers)+len(s.targets) == 0 {
		delete(b.spaces, s.name)
	}
}

// CatchUp is called before all Allocations are listed, which then are set. Until Lead what is deleted meanwhile
// isn't taken from a list that still has it: no other word of that would come.
func (b *Book) CatchUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = map[types.UID]struct{}{}
}

// Lead has the book decide, from now on, once all that the cache had is in it.
func (b *Book) Lead() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leads, b.gone = true, nil
	for _, s := range b.spaces {
		for _, e := range s.entries {
			b.check(s, e)
			if e.object.Status.State != v1alpha1.AllocationPending && e.object.Status.State != "" {
				b.observe(e)
			}
		}
		// As they came. Who is too many is found once the others have what there is.
		b.unbounded = true
		for _, e := range slices.Clone(s.waiting) {
			b.decide(s, e)
		}
		b.unbounded = false
		for len(s.waiting) > maxPending {
			b.refuse(s, s.waiting[len(s.waiting)-1], reasons.TooManyWait)
		}
	}
}

// SetServer takes in a Server as the cache has it.
func (b *Book) SetServer(o *v1alpha1.Server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.space(o.Namespace)
	srv := s.server(o.Name)
	before := s.disown(srv)
	srv.see(o)
	s.own(srv)
	b.changed(s, srv, before)
}

// DeleteServer takes in that a Server is gone.
func (b *Book) DeleteServer(o *v1alpha1.Server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.space(o.Namespace)
	defer b.leave(s)
	srv := s.servers[o.Name]
	if srv == nil || srv.object == nil || srv.object.UID != o.UID {
		return
	}
	before := s.disown(srv)
	srv.object, srv.podUID, srv.withdrawn = nil, "", false
	b.changed(s, srv, before)
}

// changed looks what follows from a Server's change: for those that have it, those that wait, and what it
// belonged to before.
func (b *Book) changed(s *space, srv *server, before []string) {
	if len(srv.holds) > 0 {
		for _, owner := range before {
			b.unused(s, owner)
		}
	}
	for e := range srv.holds {
		b.check(s, e)
	}
	s.place(srv)
	b.serve(s, srv)
	b.forget(s, srv)
}

// forget drops a Server that isn't there and that nobody names.
func (b *Book) forget(s *space, srv *server) {
	if srv.object == nil && len(srv.holds) == 0 {
		b.unset(srv.due)
		delete(s.servers, srv.name)
	}
}

func (s *space) server(name string) *server {
	srv := s.servers[name]
	if srv == nil {
		srv = &server{name: name}
		s.servers[name] = srv
	}
	return srv
}

// own has a Server count for what it belongs to; disown ends that, and gives what it was.
func (s *space) own(srv *server) {
	for i, owner := range srv.owners {
		if i > 0 { // the first is itself
			if s.owned[owner] == nil {
				s.owned[owner] = map[*server]struct{}{}
			}
			s.owned[owner][srv] = struct{}{}
		}
		if len(srv.holds) > 0 {
			s.target(owner).held += len(srv.holds)
		}
	}
}

func (s *space) disown(srv *server) (owners []string) {
	owners = srv.owners
	srv.owners = nil
	for _, owner := range owners {
		delete(s.owned[owner], srv)
		if len(s.owned[owner]) == 0 {
			delete(s.owned, owner)
		}
		if t := s.targets[owner]; t != nil {
			t.held -= len(srv.holds)
			s.tidy(owner)
		}
	}
	return owners
}

// members are the Servers that belong to a target, which may be a Server itself.
func (s *space) members(key string) map[*server]struct{} {
	name, one := strings.CutPrefix(key, TargetKey("Server", ""))
	if !one {
		return s.owned[key]
	}
	if srv := s.servers[name]; srv != nil && len(srv.owners) > 0 {
		return map[*server]struct{}{srv: {}}
	}
	return nil
}

// room is what a Server can still give, unless what it belongs to sleeps, or is about to.
func (s *space) room(srv *server) room {
	for _, owner := range srv.owners {
		if t := s.targets[owner]; t != nil && t.shut() {
			return room{}
		}
	}
	return srv.room()
}

// place puts a Server into the views.
func (s *space) place(srv *server) {
	now := s.room(srv)
	for _, v := range s.views {
		v.update(srv, now)
	}
}

// view is that of a question. One that wasn't asked for long makes room for another.
func (b *Book) view(s *space, n *need) *view {
	b.count++
	if v := s.views[n.view]; v != nil {
		v.used = b.count
		return v
	}
	if len(s.views) >= maxViews {
		var oldest string
		for key, v := range s.views {
			if oldest == "" || v.used < s.views[oldest].used {
				oldest = key
			}
		}
		gone := s.views[oldest]
		delete(s.views, oldest)
		for _, srv := range s.servers {
			srv.slots = slices.DeleteFunc(srv.slots, func(p placed) bool { return p.in == gone })
		}
	}
	v := &view{question: n.question, used: b.count, nodes: map[string]*viewNode{}}
	s.views[n.view] = v
	for _, srv := range s.servers {
		v.update(srv, s.room(srv))
	}
	return v
}

// SetNode takes in a node's labels, and DeleteNode that it is gone.
func (b *Book) SetNode(name string, labels map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes[name] = labels
}

// DeleteNode takes in that a node is gone.
func (b *Book) DeleteNode(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.nodes, name)
}

// Holder is who has a Server.
type Holder struct {
	// Name is the Allocation that has it as a whole.
	Name string
	// Shared is how many have places on it.
	Shared int
}

// Any reports whether anybody has it.
func (h Holder) Any() bool { return h.Name != "" || h.Shared > 0 }

// HolderOf is who has a Server, whether that is written already or not.
func (b *Book) HolderOf(namespace, name string, uid types.UID) (h Holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.spaces[namespace]
	if s == nil || s.servers[name] == nil {
		return h
	}
	for e := range s.servers[name].holds {
		switch {
		case e.object.Status.State == v1alpha1.AllocationAllocated && e.object.Status.ServerUID != string(uid):
			// It has an earlier Server of that name, and learns that it is gone.
		case e.need.places == 0:
			h.Name = e.object.Name
		default:
			h.Shared++
		}
	}
	return h
}

// Withdraw asks for a Server that is about to be drained or deleted. It isn't given any more, unless
// somebody has it: then the answer is false.
func (b *Book) Withdraw(namespace, name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.spaces[namespace]
	if s == nil || s.servers[name] == nil {
		return true
	}
	srv := s.servers[name]
	if len(srv.holds) > 0 {
		return false
	}
	srv.withdrawn = true
	s.place(srv)
	if srv.due == nil {
		srv.due = &due{space: s, server: srv, index: -1}
	}
	b.set(srv.due, b.now().Add(withdrawnFor))
	return true
}

// Pending is how many Allocations wait.
func (b *Book) Pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pending
}

// Free is how many of a target's Servers can be given as a whole.
func (b *Book) Free(namespace, kind, name string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.spaces[namespace]
	if s == nil {
		return 0
	}
	for srv := range s.members(TargetKey(kind, name)) {
		if s.room(srv).whole {
			n++
		}
	}
	return n
}
