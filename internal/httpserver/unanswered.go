package httpserver

import "container/list"

// tooMuchUnanswered is why the gate closes a connection that is over its bound of bytes.
const tooMuchUnanswered = "too_much_unanswered"

// unanswered is what a gate's connections have sent for which nothing was answered yet. A few bytes of a header may
// take many times as much memory, so what strangers send is bounded for all of them together. The gate's lock
// guards it.
type unanswered struct {
	// most bounds the bytes; 0: nothing does. A request counts as ofRequest more, once it is there.
	most, ofRequest, bytes int64
	// from are the *connection of which there are some, the one that has some for longest first.
	from list.List
}

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.gate.received(c, int64(n))
	}
	return n, err //nolint:wrapcheck // it is the connection's
}

// received takes in that a connection has sent something. Beyond the bound those are closed that have waited longest
// with theirs.
func (g *gate) received(c *connection, n int64) {
	if g.unanswered.most == 0 {
		return
	}
	for _, c := range g.owe(c, n) {
		g.closed.WithLabelValues(tooMuchUnanswered).Inc()
		_ = c.Conn.Close()
	}
}

// owe adds to what is unanswered of a connection, and returns those that are to be closed for that.
func (g *gate) owe(c *connection, n int64) (over []*connection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.gone || c.answers > 0 {
		return nil
	}
	u := &g.unanswered
	if c.sent == nil {
		c.sent = u.from.PushBack(c)
	}
	c.bytes += n
	u.bytes += n
	for u.bytes > u.most {
		longest := u.from.Front().Value.(*connection)
		g.forget(longest)
		over = append(over, longest)
	}
	return over
}

// answered takes in that nothing is unanswered of a connection.
func (g *gate) answered(c *connection) {
	if c.sent == nil {
		return
	}
	g.unanswered.from.Remove(c.sent)
	g.unanswered.bytes -= c.bytes
	c.sent, c.bytes = nil, 0
}
