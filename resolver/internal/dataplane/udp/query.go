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
	// queryIdle is how long a session of who only queried may be silent.
	queryIdle = 10 * time.Second
	// maxQuestion bounds a query whose answer may be another's, in bytes: no real one is
	// longer.
	maxQuestion = 512
)

// admitQuery takes the first datagram of a new client who only asks; false: it is
// none. Where no server is up it is answered at once.
func (u *socket) admitQuery(datagram []byte, from netip.AddrPort, to netip.Addr) bool {
	p := u.port.Load()
	if !p.Policy().SortsQueries || p.Joins(datagram, from) {
		return false
	}
	if !u.retellDatagram(datagram, from, to) {
		u.relayQuery(datagram, from, to)
	}
	return true
}

// relayQuery has a server answer a client's first datagram, which only asks.
func (u *socket) relayQuery(datagram []byte, from netip.AddrPort, to netip.Addr) {
	p := u.port.Load()
	picked, ok := p.Queue.PickForQuery(p.Key.Name)
	if !ok {
		u.judge(datagram, from, to)
		return
	}
	if s := u.enter(datagram, from, to, true); s != nil {
		s.beginQuery(datagram, picked)
	} else if picked.Unproven {
		p.Queue.Avoid(p.Key.Name, picked.Address)
	}
}

// beginQuery is begin for a client who only asks.
func (s *session) beginQuery(datagram []byte, picked hold.Release) {
	s.touch(&s.clientAt, time.Now())
	s.budget().Force(lengthBytes + len(datagram))
	s.port.Counts.ClientTaken()
	s.mu.Lock()
	s.keep(datagram)
	s.mu.Unlock()
	s.start(picked)
}

// answerInstead answers what a client asked whose server is not there, and ends it.
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
		_ = s.socket.packets.Send(verdict.Answer, s.source, s.client)
	}
	s.over("")
}

// retellDatagram is retell for a datagram of a client who only asks.
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
	// What is in them is the loop's only until it receives again.
	datagram, source := bytes.Clone(datagram), u.packets.Source(to)
	tell := func(answer []byte) bool {
		v := proto.Verdict{Action: proto.Answer, Answer: r.Retell(nil, answer, datagram), Proven: r.Proves()}
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

// tell answers a datagram; false: that may not be done just now, and a server is to.
func (u *socket) tell(p *Port, v proto.Verdict, datagram []byte, from netip.AddrPort, source []byte) bool {
	if !p.MayAnswer(v, datagram, from) {
		return false
	}
	p.Counts.QueryAnswered()
	_ = u.packets.Send(v.Answer, source, from)
	return true
}
