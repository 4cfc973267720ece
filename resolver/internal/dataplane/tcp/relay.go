package tcp

import (
	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
	"dormouse.dev/dormouse/resolver/internal/relay"
)

// relayOptions are how the port's clients are relayed. Those with nothing of their own share one.
// Withheld is what the exchange has read and must not be sent yet.
func (p *Port) relayOptions(r relaying, withheld []byte) *relay.Options {
	x := r.exchange
	own := x != nil || r.mark != nil || r.answered != nil
	if shared := p.unfollowed.Load(); !own && shared != nil {
		return shared
	}
	o := &relay.Options{
		ToServer: p.counts.BytesToServer, ToClient: p.counts.BytesToClient,
		Exchange: x, Withheld: withheld, Mark: r.mark, Answered: r.answered, Kept: p.Stalled, HalfClosed: p.TCPHalfClosed, Idle: p.TCPIdle,
	}
	if x != nil {
		o.Head = p.HeadTime()
	}
	if !own {
		p.unfollowed.Store(o)
	}
	return o
}

// relaying is how one client is relayed.
type relaying struct {
	// query is set while the client only queries the status.
	query bool
	// exchange follows its requests; nil: nothing does. EndsIdle is set where the connection is
	// ended between two requests once new clients go past the resolver.
	exchange *http1.Exchange
	endsIdle bool
	// mark marks the first response; nil: nothing does.
	mark *http1.Mark
	// answered is called when the backend has answered, and at the end; nil: nobody waits for
	// that.
	answered func()
}

// relay relays a client that has its backend, and counts as relayed, until it ends.
func (p *Port) relay(c *Client, server *backend) {
	c.stay.Served()
	p.served(c, server)
	r := relaying{exchange: server.exchange, answered: server.answered}
	if p.Can.Requests && (c.front == nil || c.front.only == nil) {
		r.exchange = p.follow(c.sent)
		r.endsIdle = r.exchange != nil
	}
	if server.waited && p.Policy().MarksColdStarts {
		r.mark = &http1.Mark{}
	}
	if c.ended {
		_ = c.conn.Watch(conn.DefaultKeepAlive)
	}
	p.start(c, server, r)
}

// served notes that a client has a backend, to which what was held has been sent.
func (p *Port) served(c *Client, server *backend) {
	if c.line != nil {
		c.line.Served(server.address)
		c.line.AddBytes(int64(server.passed), 0)
	}
	if server.passed > 0 {
		p.counts.BytesToServer(server.passed)
	}
}

// start gives a client's connections to a loop. The client ends with them.
func (p *Port) start(c *Client, server *backend, r relaying) {
	var withheld []byte
	if server.passed < len(c.sent) {
		withheld = c.sent[server.passed:]
	}
	c.drop(len(c.sent)) // the relay keeps the rest
	client := c.conn.Detach()
	c.conn = nil
	p.Running.Add(1)
	var f *followed
	if r.endsIdle {
		f = &followed{}
	}
	begun := relay.Start(p.Relays, loop.Next(), client, server.conn.Detach(), p.relayOptions(r, withheld), func(e relay.Ended) {
		defer p.Running.Done()
		if f != nil {
			p.tcp.follows.end(f)
		}
		if r.answered != nil {
			r.answered()
		}
		p.ended(c.line, e)
		if e.Why == relay.ByTurn {
			c.turn(e)
		}
		// A client that only queried at first may do more by now.
		p.End(r.query && !c.open)
		c.end()
	})
	if f != nil {
		p.tcp.follows.begin(f, begun)
		p.tcp.EndIdle(p.Service)
	}
}

// ended takes in how a relay ended.
func (p *Port) ended(l *accesslog.Line, e relay.Ended) {
	l.AddBytes(e.ToServer, e.ToClient)
	p.Ended(l, string(e.Why))
	if e.Err != nil {
		p.Log.V(1).Info("A connection ended with an error", "by", e.Why, "error", e.Err.Error())
	}
}
