// Package feed tells the page which servers change, and remembers what it has seen of a day: how
// many played, and how the last wakes went. It sees what its replica sees, since that began: it is
// for people to look at, and nothing is decided by it.
package feed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/operator/internal/restapi/hosting"
)

// Bounds of what is kept.
const (
	// maxSamples bounds a server's samples, which for 10,000 servers that are played all day are
	// 90 MiB.
	maxSamples = 288
	// sampleEvery is how far samples are apart.
	sampleEvery = 5 * time.Minute
	// keepFor is for how long samples are kept.
	keepFor = 24 * time.Hour
	// maxWakes bounds a server's wakes.
	maxWakes = 20
	// behind is how many changes may wait for a reader. One who reads no faster begins anew.
	behind = 256
	// gather is how long changes are gathered before servers are looked at.
	gather = 100 * time.Millisecond
)

// Change is a server that changed.
type Change struct {
	ID     int64
	Server hosting.Server
	// Gone is whether it isn't there any more.
	Gone bool
}

// Sample is how many played from a time on.
type Sample struct {
	At      time.Time
	Players int32
	Asleep  bool
}

// past is what is remembered of a server.
type past struct {
	samples []Sample
	wakes   []hosting.Wake
}

// Feed watches servers. Run must be called.
type Feed struct {
	hosting *hosting.Hosting
	now     func() time.Time
	log     logr.Logger

	mu      sync.Mutex
	changed map[int64]bool
	notice  chan struct{}
	readers map[chan Change]bool
	past    map[int64]*past
}

// New makes a Feed.
func New(h *hosting.Hosting, now func() time.Time, log logr.Logger) *Feed {
	return &Feed{
		hosting: h, now: now, log: log, changed: map[int64]bool{}, notice: make(chan struct{}, 1),
		readers: map[chan Change]bool{}, past: map[int64]*past{},
	}
}

// Handler is told of each change of a server's objects.
func (f *Feed) Handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    f.touch,
		UpdateFunc: func(_, now any) { f.touch(now) },
		DeleteFunc: f.touch,
	}
}

func (f *Feed) touch(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	object, ok := o.(client.Object)
	if !ok {
		return
	}
	id, ok := hosting.ID(object.GetName())
	if !ok {
		return
	}
	f.mu.Lock()
	f.changed[id] = true
	f.mu.Unlock()
	select {
	case f.notice <- struct{}{}:
	default:
	}
}

// Run looks at what changed until ctx ends.
func (f *Feed) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.notice:
		}
		// A wake changes several objects at once.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(gather):
		}
		f.look(ctx)
	}
}

func (f *Feed) look(ctx context.Context) {
	f.mu.Lock()
	ids := f.changed
	f.changed = map[int64]bool{}
	f.mu.Unlock()
	for id := range ids {
		c, err := f.see(ctx, id)
		if err != nil {
			// The others are shown all the same.
			f.log.Error(err, "A server isn't shown", "server", id)
			continue
		}
		f.took(c)
	}
}

// see looks at a server. What is wrong with one costs no other.
func (f *Feed) see(ctx context.Context, id int64) (c Change, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	server, found, err := f.hosting.Seen(ctx, id)
	return Change{ID: id, Server: server, Gone: !found}, err
}

// took remembers a change, and tells the readers.
func (f *Feed) took(c Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.Gone {
		delete(f.past, c.ID)
	} else {
		f.remember(c.Server)
	}
	for r := range f.readers {
		select {
		case r <- c:
		default:
			delete(f.readers, r)
			close(r)
		}
	}
}

func (f *Feed) remember(s hosting.Server) {
	p := f.past[s.ID]
	if p == nil {
		p = &past{}
		f.past[s.ID] = p
	}
	now := f.now()
	sample := Sample{At: now, Players: s.Players.Current, Asleep: s.Asleep}
	switch last := len(p.samples) - 1; {
	case last >= 0 && p.samples[last].Players == sample.Players && p.samples[last].Asleep == sample.Asleep:
	case last >= 0 && now.Sub(p.samples[last].At) < sampleEvery:
		// The most that played in that time is what shows.
		p.samples[last].Players, p.samples[last].Asleep = max(p.samples[last].Players, sample.Players), sample.Asleep
	default:
		p.samples = append(p.samples, sample)
	}
	for len(p.samples) > maxSamples || len(p.samples) > 1 && now.Sub(p.samples[1].At) > keepFor {
		p.samples = p.samples[1:]
	}
	if w := s.LastWake; w != nil && (len(p.wakes) == 0 || !p.wakes[0].Asked.Equal(w.Asked)) {
		p.wakes = append([]hosting.Wake{*w}, p.wakes[:min(len(p.wakes), maxWakes-1)]...)
	}
}

// Watch sends each change from now on, until ctx ends, or its reader is too slow: then the channel is
// closed.
func (f *Feed) Watch(ctx context.Context) <-chan Change {
	r := make(chan Change, behind)
	f.mu.Lock()
	f.readers[r] = true
	f.mu.Unlock()
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.readers[r] {
			delete(f.readers, r)
			close(r)
		}
	})
	return r
}

// Samples are those of the last day, the oldest first.
func (f *Feed) Samples(id int64) []Sample {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.past[id]; p != nil {
		return append([]Sample(nil), p.samples...)
	}
	return nil
}

// Wakes are the last ones, the newest first.
func (f *Feed) Wakes(id int64) []hosting.Wake {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.past[id]; p != nil {
		return append([]hosting.Wake(nil), p.wakes...)
	}
	return nil
}
