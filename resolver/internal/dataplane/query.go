package dataplane

import (
	"net"
	"net/netip"
	"time"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/forward"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

// Where all clients of an awake service go through the resolver, those who only
// ask for the status go to a server like any other, and don't keep it awake. They
// get no seat, a full server answers too, and none is woken for them: where no
// server is up they are answered in its place.

// queryIdle is how long a UDP session of who only asked may be silent.
const queryIdle = 10 * time.Second

// verdictOn asks the protocol what it would make of a client if no server were up.
func (p *servedPort) verdictOn(head []byte, source netip.AddrPort) (action proto.Action, after time.Duration) {
	scratch := conn.Streams.Get()
	defer conn.Streams.Put(scratch)
	k := p.known.Load()
	c, service := k.client(source, (*scratch)[:0]), k.service
	service.Phase, service.Players, c.Service = proto.Waking, nil, &service
	v := p.protocol.Inspect(head, c)
	return v.Action, v.After
}

// joins says that whoever sends that wants to be held, if no server were up.
func (p *servedPort) joins(head []byte, source netip.AddrPort) bool {
	action, _ := p.verdictOn(head, source)
	return action == proto.Hold
}

// asks hears out a TCP client and says whether it only asks; heard is false for one
// that went away or was refused before that was known. Protocols in which the server speaks first
// don't get here.
func (p *servedPort) asks(h *heldTCP) (query, heard bool) {
	defer p.occupy(h).End()
	due := time.Now().Add(p.headTime())
	_ = h.conn.SetDeadline(due)
	for {
		action, after := p.verdictOn(h.sent, netip.AddrPort{})
		if after > 0 && h.goesOn(after, due) {
			continue
		}
		if action != proto.NeedMore {
			_ = h.conn.SetDeadline(time.Time{})
			return action != proto.Hold, true
		}
		if len(h.sent) >= proto.MaxHead {
			_ = h.conn.SetDeadline(time.Time{})
			return false, true // the server may know better
		}
		if !p.hear(h, false) {
			return false, false
		}
	}
}

// serveQuery relays a client who only asks; false: no server is up.
func (p *servedPort) serveQuery(h *heldTCP) bool {
	picked, ok := p.service.queue.PickForQuery(p.key.name)
	if !ok {
		return false
	}
	server := p.reach(picked)
	if server == nil {
		return false
	}
	if replay(h, server) != nil {
		_ = server.Close()
		return false
	}
	p.counts.BytesToServer(len(h.sent))
	h.served(server)
	if _, is := p.protocol.(http1.Protocol); is && !h.local {
		p.relayProbes(h, server)
		return true
	}
	p.begin(true)
	defer p.end(true)
	h.release(len(h.sent))
	p.relay(h, server, nil)
	return true
}

// relayProbes relays a client of HTTP whose first request is a probe. It counts like
// any other from the first request on that is none. It gets no seat then either: it
// has its server.
func (p *servedPort) relayProbes(h *heldTCP, server *net.TCPConn) {
	active, query := &p.service.active, true
	p.begin(true)
	defer func() {
		if !query {
			active.touch(time.Now())
			active.open.Add(-1)
		}
		p.end(query)
	}()
	x := http1.NewExchange()
	x.Watch(func(head []byte) bool { return !p.joins(head, netip.AddrPort{}) }, func() {
		query = false
		active.open.Add(1)
		active.relayed.Add(1)
	})
	x.Read(http1.Client, h.sent)
	x.Passed(http1.Client)
	h.release(len(h.sent))
	p.relayed(h.line, forward.Run(p.service.server.ctx, h.conn, server, p.relaying(x, nil), nil))
}

// admitQuery takes the first datagram of a new client who only asks; false: it is
// none. Where no server is up it is answered at once.
func (u *udpSocket) admitQuery(datagram []byte, from netip.AddrPort, to netip.Addr) bool {
	p := u.port.Load()
	if !p.known.Load().sorts || p.joins(datagram, from) {
		return false
	}
	if !u.retellDatagram(datagram, from, to) {
		u.relayQuery(datagram, from, to)
	}
	return true
}

// relayQuery has a server answer a client's first datagram, which only asks.
func (u *udpSocket) relayQuery(datagram []byte, from netip.AddrPort, to netip.Addr) {
	p := u.port.Load()
	picked, ok := p.service.queue.PickForQuery(p.key.name)
	if !ok {
		u.judge(datagram, from, to)
		return
	}
	if s := u.enter(datagram, from, to, true); s != nil {
		s.beginQuery(datagram, picked)
	} else if picked.Unproven {
		p.service.queue.Avoid(p.key.name, picked.Address)
	}
}

// beginQuery is begin for a client who only asks.
func (s *udpSession) beginQuery(datagram []byte, picked hold.Grant) {
	s.touch(&s.clientAt, time.Now())
	s.budget().Force(lengthBytes + len(datagram))
	s.port.counts.ClientTaken()
	s.mu.Lock()
	s.keep(datagram)
	s.mu.Unlock()
	s.start(picked)
}

// answerInstead answers what a client asked whose server is not there, and ends it.
func (s *udpSession) answerInstead() {
	p := s.port
	var first []byte
	s.mu.Lock()
	if len(s.queue) > 0 {
		first, _ = nextHeld(s.queue)
	}
	s.mu.Unlock()
	k := p.known.Load()
	switch verdict := p.protocol.Inspect(first, k.client(s.client, nil)); {
	case len(verdict.Answer) == 0:
	case !p.mayBeAnswered(k, verdict, first, s.client):
		p.counts.Refused(string(proto.AnswerRate))
	default:
		p.counts.QueryAnswered()
		s.line.Answered()
		_ = s.socket.packets.Send(verdict.Answer, s.source, s.client)
	}
	s.over("")
}
