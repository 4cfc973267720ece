package page

import (
	"context"
	"time"
)

// liveServer sends a server as it is, its log, and then what changes.
func (p *page) liveServer(ctx context.Context, r *signedIn, begin func() *stream) error {
	id, err := idOf(r.Request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &liveOne{p: p, id: id}
	if l.changes, err = p.servers.Watch(ctx, r.who); err != nil {
		return err
	}
	if l.events, err = p.servers.WatchEvents(ctx, r.who, id); err != nil {
		return err
	}
	now, err := p.servers.Get(ctx, r.who, id)
	if err != nil {
		return err
	}
	past, err := p.servers.Events(ctx, r.who, id)
	if err != nil {
		// The page says why there are none.
		past = nil
	}
	l.log = &follower{p: p, r: r, id: id, most: p.options.LogLines, again: make(chan struct{}, 1)}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		l.log.run(ctx)
	}()
	defer func() {
		cancel()
		<-followed
	}()
	l.stream = begin()
	return l.run(ctx, now, past)
}

// liveOne is a stream about one server.
type liveOne struct {
	p       *page
	id      int64
	stream  *stream
	changes <-chan Change
	events  <-chan Event
	log     *follower
	last    view
}

func (l *liveOne) run(ctx context.Context, now Server, past []Event) error {
	if err := l.server(&now); err != nil {
		return err
	}
	for i := min(len(past), maxEvents) - 1; i >= 0; i-- {
		if err := l.stream.send("event", eventViewOf(&past[i])); err != nil {
			return err
		}
	}
	flush := time.NewTicker(flushEvery)
	defer flush.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-l.stream.beat.C:
			err = l.stream.heartbeat()
		case <-flush.C:
			if message, some := l.log.take(); some {
				err = l.stream.send("log", message)
			}
		case event, open := <-l.events:
			if !open {
				return nil
			}
			err = l.stream.send("event", eventViewOf(&event))
		case change, open := <-l.changes:
			switch {
			case !open:
				return nil
			case change.Server.ID != l.id:
			case change.Gone:
				return l.stream.send("gone", goneMessage{l.id})
			default:
				err = l.server(&change.Server)
			}
		}
		if err != nil {
			return err
		}
	}
}

// server sends the server. When it has another state its game may be another one too, with
// another log.
func (l *liveOne) server(s *Server) error {
	v := viewOf(s)
	if l.last.State != "" && l.last.State != v.State {
		l.log.changed()
	}
	l.last = v
	return l.stream.send("server", v)
}
