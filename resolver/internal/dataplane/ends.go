package dataplane

import (
	"net/netip"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// Every client that goes is counted once by why it went: refused, answered, or ended.
// Its line in the access log, if there is one, says the same. A datagram that gets no
// session has none: its source may be forged, and there may be any number of them.

// line begins the access log's line of a client of the port.
func (p *servedPort) line(from netip.AddrPort) *accesslog.Line {
	l := p.service.server.opts.AccessLog.Begin(from)
	p.wanted(l)
	return l
}

// wanted notes that a client wants the port.
func (p *servedPort) wanted(l *accesslog.Line) {
	if l != nil {
		r := p.service.route.Load()
		l.For(r.Namespace, r.Service, p.key.name, string(p.key.protocol))
	}
}

// refuse counts a client that is sent away.
func (p *servedPort) refuse(l *accesslog.Line, reason proto.Reason) {
	p.counts.Refused(string(reason))
	l.Refused(string(reason))
}

// leaves counts a client that was held or relayed and goes.
func (p *servedPort) leaves(l *accesslog.Line, why string) {
	p.counts.Ended(why)
	l.Ended(why)
}
