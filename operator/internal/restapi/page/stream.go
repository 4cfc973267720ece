package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// writeWithin is how long a browser may take for one message, beyond the time until the next heartbeat.
// One that doesn't read is gone.
const writeWithin = 10 * time.Second

// stream is an answer of server-sent events, as the HTML standard has them. Each has a name, and
// JSON on one line.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	// beat is when to show that the stream lives, where nothing else is sent.
	beat  *time.Timer
	every time.Duration
}

// send sends an event.
func (s *stream) send(name string, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("write event %s: %w", name, err)
	}
	return s.write(fmt.Sprintf("event: %s\ndata: %s\n\n", name, body))
}

// heartbeat sends what the script doesn't see.
func (s *stream) heartbeat() error { return s.write(": \n\n") }

func (s *stream) write(words string) error {
	s.beat.Reset(s.every)
	// HTTP/2 ends a stream when that time is over, whether something is being written or not.
	if err := s.control.SetWriteDeadline(time.Now().Add(s.every + writeWithin)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("bound the time of an event: %w", err)
	}
	if _, err := s.w.Write([]byte(words)); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	return s.control.Flush()
}

// live makes a handler of one that streams. What is refused before the stream is one sentence of
// text, which the script shows. A stream that ends, whatever ended it, is begun anew by the
// browser.
func (p *page) live(run func(context.Context, *signedIn, func() *stream) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), p.options.StreamFor)
		defer cancel()
		var s *stream
		err := p.admitted(r.WithContext(ctx), func(who *signedIn) error {
			defer func() {
				if s != nil {
					s.beat.Stop()
					// Its end is written once this has returned.
					_ = s.control.SetWriteDeadline(time.Now().Add(writeWithin))
				}
			}()
			return run(ctx, who, func() *stream {
				s = p.begin(w)
				return s
			})
		})
		if s != nil || err == nil {
			return
		}
		refusal := p.streamRefusal(r, err)
		http.Error(w, refusal.Sentence, refusal.Status)
	}
}

func (p *page) streamRefusal(r *http.Request, err error) *Refusal {
	if errors.Is(err, errSignedOut) {
		return &Refusal{http.StatusUnauthorized, "You are signed out."}
	}
	return p.refusalOf(r, err)
}

// admitted runs a stream of a caller who has one to spare.
func (p *page) admitted(r *http.Request, run func(*signedIn) error) error {
	who, err := p.callerOf(r)
	if err != nil {
		return err
	}
	done, err := p.streams.admit(who.who.Name())
	if err != nil {
		return err
	}
	defer done()
	return run(who)
}

func (p *page) begin(w http.ResponseWriter) *stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	// nginx would keep events back.
	h.Set("X-Accel-Buffering", "no")
	s := &stream{
		w: w, control: http.NewResponseController(w),
		beat: time.NewTimer(p.options.Heartbeat), every: p.options.Heartbeat,
	}
	// A server's ReadTimeout would end the stream.
	_ = s.control.SetReadDeadline(time.Time{})
	w.WriteHeader(http.StatusOK)
	return s
}

// listMessage is the whole list. The script takes away what isn't in it.
type listMessage struct {
	Servers []view `json:"servers"`
}

type goneMessage struct {
	ID int64 `json:"id"`
}

// liveList sends the servers of a page of the list, and then those of them that change. It watches
// before it lists, so that nothing is missed between.
func (p *page) liveList(ctx context.Context, r *signedIn, begin func() *stream) error {
	query, err := p.queryOf(r.Request)
	if err != nil {
		return err
	}
	changes, err := p.servers.Watch(ctx, r.who)
	if err != nil {
		return err
	}
	listing, err := p.servers.List(ctx, r.who, query)
	if err != nil {
		return err
	}
	shown := newWindow(query, &listing)
	message := listMessage{Servers: []view{}}
	for i := range listing.Servers {
		message.Servers = append(message.Servers, viewOf(&listing.Servers[i]))
	}
	s := begin()
	if err := s.send("list", message); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.beat.C:
			err = s.heartbeat()
		case change, open := <-changes:
			if !open {
				return nil
			}
			err = p.sendChange(s, shown, &change)
		}
		if err != nil {
			return err
		}
	}
}

func (p *page) sendChange(s *stream, shown *window, change *Change) error {
	id := change.Server.ID
	switch {
	case change.Gone && shown.remove(id):
		return s.send("gone", goneMessage{id})
	case !change.Gone && shown.add(id):
		return s.send("server", viewOf(&change.Server))
	}
	return nil
}

// window is which servers a page of the list has: a new one comes in where it belongs there.
type window struct {
	ids         map[int64]bool
	first, last int64
	// open is whether servers after the last one belong to it; closed is whether no new one does,
	// as the page shows what was looked for.
	open, closed bool
	most         int
}

func newWindow(query Query, listing *Listing) *window {
	w := &window{
		ids: map[int64]bool{}, open: listing.Next == "", closed: query.Text != "",
		// A page grows with servers that come, for as long as nobody loads it again.
		most: 2 * query.Limit,
	}
	for i := range listing.Servers {
		w.ids[listing.Servers[i].ID] = true
	}
	if n := len(listing.Servers); n > 0 {
		w.last = listing.Servers[n-1].ID
		if query.After != "" {
			w.first = listing.Servers[0].ID
		}
	}
	return w
}

// add reports whether a server belongs to the page.
func (w *window) add(id int64) bool {
	if w.ids[id] {
		return true
	}
	if w.closed || len(w.ids) >= w.most || id < w.first || (id > w.last && !w.open) {
		return false
	}
	w.ids[id] = true
	return true
}

// remove reports whether a server was on the page.
func (w *window) remove(id int64) bool {
	was := w.ids[id]
	delete(w.ids, id)
	return was
}

// streams counts the live streams, so that neither all nor one caller's take the operator's memory.
type streams struct {
	most, ofCaller int

	mu      sync.Mutex
	open    int
	callers map[string]int
}

// admit takes a stream's place, until done is called.
func (s *streams) admit(caller string) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.callers[caller] >= s.ofCaller {
		return nil, Refuse(http.StatusTooManyRequests,
			"You have %d pages open that update by themselves, and may have no more. Close one.", s.ofCaller)
	}
	if s.open >= s.most {
		return nil, Refuse(http.StatusTooManyRequests, "Too many people look at pages that update by themselves.")
	}
	if s.callers == nil {
		s.callers = map[string]int{}
	}
	s.open++
	s.callers[caller]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		if s.callers[caller]--; s.callers[caller] == 0 {
			delete(s.callers, caller)
		}
	}, nil
}
