package udp

import (
	"bytes"
	"net/netip"
	"time"

	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// Where all clients of an awake service go through the resolver, those who only query its
// status go to a backend like any other, and don't keep it awake. They get no slot, a full
// backend answers too, and none is woken for them: where no backend is up they are answered
// in its place.

const (
	// queryIdle is how long a session that only queries may be silent.
	queryIdle = 10 * time.Second
	// maxQuestion bounds a query that may get another query's answer, in bytes: no real one is
	// longer.
	maxQuestion = 512
)

// admitQuery takes the first datagram of a new client that only queries; false: it is no query.
// Where no backend is up it is answered at once.
func (u *socket) admitQuery(datagram []byte, from netip.AddrPort, to netip.Addr) bool {
	p := u.port.Load()
	if !p.Policy().ClassifiesQueries || p.Joins(datagram, from) {
		return false
	}
	if !u.retellDatagram(datagram, from, to) {
		u.relayQuery(datagram, from, to)
	}
	return true
}

// relayQuery relays a client's first datagram, which is a query, to a backend.
func (u *socket) relayQuery(datagram []byte, from netip.AddrPort, to netip.Addr) {
	p := u.port.Load()
	picked, ok := p.Queue.PickForQuery(p.Key.PortID)
	if !ok {
		u.classify(datagram, from, to)
		return
	}
	if s := u.sessionOf(datagram, from, to, true); s != nil {
		s.beginQuery(datagram, picked)
	} else if picked.Unproven {
		p.Queue.Avoid(p.Key.PortID, picked.Address)
	}
}

// beginQuery is begin for a client that only queries.
func (s *session) beginQuery(datagram []byte, picked hold.Release) {
	s.touch(&s.clientAt, time.Now())
	s.budget().Force(lengthBytes + len(datagram))
	s.port.Counts.ClientTaken()
	s.mu.Lock()
	s.keep(datagram)
	s.mu.Unlock()
	s.start(picked)
}

// answerInstead answers a client's query because its backend is not there, and ends the
// session.
func (s *session) answerInstead() {
	p := s.port
	var first []byte
	s.mu.Lock()
	if len(s.queue) > 0 {
		first, _ = nextHeld(s.queue)
	}
	s.mu.Unlock()
	k := p.Policy()
	switch verdict := p.Protocol.Inspect(first, k.Client(s.client, nil)); {
	case len(verdict.Answer) == 0:
	case !p.MayAnswer(verdict, first, s.client):
		p.Counts.Refused(string(proto.AnswerRate))
	default:
		p.Counts.QueryAnswered()
		s.line.Answered()
		_ = s.replier.Send(verdict.Answer)
	}
	s.over("")
}

// retellDatagram is retell for a datagram of a client that only queries.
func (u *socket) retellDatagram(datagram []byte, from netip.AddrPort, to netip.Addr) bool {
	p := u.port.Load()
	r := p.Can.Reteller
	if r == nil || len(datagram) > maxQuestion {
		return false
	}
	k := p.Policy()
	q, v, ok := r.Asks(datagram, k.Client(from, nil))
	switch {
	case !ok:
		return false
	case v.Action == proto.Answer:
		return p.Answers.MayRecall(r, q) && u.tell(p, v, datagram, from, u.packets.Source(to))
	}
	// The loop's buffers are overwritten when it receives again.
	datagram, source := bytes.Clone(datagram), u.packets.Source(to)
	tell := func(answer []byte) bool {
		v := proto.Verdict{Action: proto.Answer, Answer: r.Retell(nil, answer, datagram), AddressValidated: r.ValidatesAddress()}
		return u.tell(p, v, datagram, from, source)
	}
	answer, ok := p.Answers.Recall(r, q, func(answer []byte) {
		if answer != nil && tell(answer) {
			return
		}
		u.loop.Do(func() {
			if u.find(from) == nil {
				u.relayQuery(datagram, from, to)
			}
		})
	})
	return ok && (answer == nil || tell(answer))
}

// tell answers a datagram; false: the resolver may not answer now, and a backend has to.
func (u *socket) tell(p *Port, v proto.Verdict, datagram []byte, from netip.AddrPort, source []byte) bool {
	if !p.MayAnswer(v, datagram, from) {
		return false
	}
	p.Counts.QueryAnswered()
	_ = u.packets.Send(v.Answer, source, from)
	return true
}
