package service

import (
	"net/netip"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// Every client is counted once by why it ended: refused, answered, or ended. Its line in the
// access log, if there is one, has the same reason. A datagram that gets no session has no
// line: its source may be forged, and there may be any number of them.

// Line begins the access log's line of a client of the port.
func (p *Port) Line(from netip.AddrPort) *accesslog.Line {
	l := p.AccessLog.Begin(from)
	p.Wanted(l)
	return l
}

// Wanted notes that a client wants the port.
func (p *Port) Wanted(l *accesslog.Line) {
	if l != nil {
		r := p.Route()
		l.For(r.Namespace, r.Service, p.Key.Name, string(p.Key.Protocol))
	}
}

// Refuse counts a client that is refused.
func (p *Port) Refuse(l *accesslog.Line, reason proto.Reason) {
	p.Counts.Refused(string(reason))
	l.Refused(string(reason))
}

// Ended counts the end of a client that was held or relayed.
func (p *Port) Ended(l *accesslog.Line, why string) {
	p.Counts.Ended(why)
	l.Ended(why)
}
