package dataplane

import (
	"net/netip"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// Every client that goes is counted once by why it went: refused, answered, or ended.
// Its line in the access log, if there is one, says the same.

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

// refuseUnheard is refuse for a client that never had a place, of which its first
// datagram or its connection is all that there is.
func (p *servedPort) refuseUnheard(from netip.AddrPort, reason proto.Reason) {
	l := p.line(from)
	p.refuse(l, reason)
	l.Write()
}

// leaves counts a client that was held or relayed and goes.
func (p *servedPort) leaves(l *accesslog.Line, why string) {
	p.counts.Ended(why)
	l.Ended(why)
}
