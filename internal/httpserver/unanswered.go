package httpserver

import "container/list"

// tooMuchUnanswered is why the gate closes a connection that is over its bound of bytes.
const tooMuchUnanswered = "too_much_unanswered"

// unanswered is what a gate's connections have sent for which nothing was answered yet. A few bytes of a header may
// take many times as much memory, so what strangers send is bounded for all of them together. The gate's lock
// guards it.
type unanswered struct {
	// most bounds the bytes; 0: nothing does.
	most, bytes int64
	// from are the *connection of which there are some, the one that has some for longest first.
	from list.List
}

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.gate.unanswered.most > 0 {
		c.gate.received(c, int64(n))
	}
	return n, err //nolint:wrapcheck // it is the connection's
}

// received takes in that a connection has sent something. Beyond the bound those are closed that have waited longest
// with theirs.
func (g *gate) received(c *connection, n int64) {
	g.mu.Lock()
	u := &g.unanswered
	if c.gone || c.answers > 0 {
		g.mu.Unlock()
		return
	}
	if c.sent == nil {
		c.sent = u.from.PushBack(c)
	}
	c.bytes += n
	u.bytes += n
	var over []*connection
	for u.bytes > u.most {
		longest := u.from.Front().Value.(*connection)
		g.forget(longest)
		over = append(over, longest)
	}
	g.mu.Unlock()
	for _, c := range over {
		g.closed.WithLabelValues(tooMuchUnanswered).Inc()
		_ = c.Conn.Close()
	}
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
