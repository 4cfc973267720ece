package dataplane

import (
	"bytes"
	"net"
	"net/netip"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

// Where all clients of an awake service go through the resolver, what a server said to
// one who only asked is told to all who ask the same for a second. So a storm of
// questions costs the game one a second for each of a few kinds.

const (
	// freshFor is how long an answer is told without asking again, and staleFor while
	// the server is being asked again.
	freshFor = time.Second
	staleFor = 3 * time.Second
	// forgetAfter is how long an answer is kept that nobody asks for.
	forgetAfter = 10 * time.Second
	// maxQuestions bounds the kinds of questions of a port whose answers are kept: names
	// and versions are the client's to choose. Who asks for more asks the server itself;
	// where there are more than that a second, they are told one answer, to one of them.
	maxQuestions = 16
	// maxFetching bounds how many answers a port's servers are asked for at once.
	maxFetching = 4
	// parallelFetches bounds how many all services' servers are asked for at once.
	parallelFetches = 256
	// maxAsking bounds how many wait for an answer, and maxQuestion what a datagram of
	// theirs has, in bytes: no real one is longer.
	maxAsking   = 1024
	maxQuestion = 512
)

// retold are the answers of a port's servers that are told again.
type retold struct {
	mu  sync.Mutex
	all map[string]*retoldAnswer
	// others is told those whose questions there is no room for.
	others retoldAnswer
	// fetching counts those that are asked for now, and next are to be.
	fetching int
	next     []func()
	// more counts those who asked by themselves, in this second, because there was no
	// room for their questions.
	more   int
	second time.Time
	closed bool
	sweep  *time.Timer
}

// retoldAnswer is one of them. Answer is never changed.
type retoldAnswer struct {
	answer []byte
	// at is when it came, and failed when none came since.
	at, failed time.Time
	asking     bool
	waiting    []func(answer []byte)
}

// recall gives what a server said lately to who asked the same. Where that isn't known,
// or is too old, a server is asked, and then is told; nil says that none answered. Ok is
// false where the client is to ask itself.
func (p *servedPort) recall(r proto.Reteller, q proto.Question, then func(answer []byte)) (answer []byte, ok bool) {
	t, now := &p.retold, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.entry(p, q.Key)
	switch {
	case t.closed, a == nil && t.mayAskItself(now):
		return nil, false
	case a == nil:
		a = &t.others
	}
	age := now.Sub(a.at)
	if a.answer != nil && age < freshFor {
		return a.answer, true
	}
	asked := p.ask(a, r, q, now)
	switch {
	case a.answer != nil && age < staleFor:
		return a.answer, true
	case !asked, len(a.waiting) >= maxAsking:
		return nil, false
	}
	a.waiting = append(a.waiting, then)
	return nil, true
}

// mayRecall says whether who is about to ask will likely be told by recall. A server whose
// answer can't be told again, because it comes in parts for instance, says so at once.
func (p *servedPort) mayRecall(r proto.Reteller, q proto.Question) bool {
	t, now := &p.retold, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.entry(p, q.Key)
	switch {
	case a == nil:
		return false
	case a.answer != nil && now.Sub(a.at) < staleFor:
		return true
	}
	return p.ask(a, r, q, now) && a.failed.IsZero()
}

// entry is what is known of a question; nil: there is no room to know anything.
func (t *retold) entry(p *servedPort, key string) *retoldAnswer {
	if a := t.all[key]; a != nil || t.closed || len(t.all) >= maxQuestions {
		return a
	}
	if t.all == nil {
		t.all = map[string]*retoldAnswer{}
	}
	if t.sweep == nil {
		t.sweep = time.AfterFunc(forgetAfter, p.forgetOld)
	}
	a := &retoldAnswer{}
	t.all[key] = a
	return a
}

// mayAskItself says that a client whose question there is no room for may ask the server
// itself.
func (t *retold) mayAskItself(now time.Time) bool {
	if now.Sub(t.second) >= time.Second {
		t.second, t.more = now, 0
	}
	t.more++
	return t.more <= maxQuestions
}

// ask has a server asked, now or in turn, unless one is; false: not again so soon.
func (p *servedPort) ask(a *retoldAnswer, r proto.Reteller, q proto.Question, now time.Time) bool {
	t := &p.retold
	switch {
	case a.asking:
		return true
	case now.Sub(a.failed) < freshFor:
		return false
	}
	a.asking = true
	question := bytes.Clone(q.Ask)
	fetch := func() {
		p.service.server.wg.Go(func() {
			defer utilruntime.HandleCrash()
			p.answered(a, p.fetch(r, question))
		})
	}
	if t.fetching == maxFetching {
		t.next = append(t.next, fetch)
		return true
	}
	t.fetching++
	fetch()
	return true
}

// fetch asks a server; nil: it didn't answer, or there is no room for what it said.
func (p *servedPort) fetch(r proto.Reteller, question []byte) []byte {
	picked, ok := p.service.queue.PickForQuery(p.key.name)
	switch {
	case !ok:
		return nil
	case picked.Unproven:
		// That it is up the client's own datagram finds out.
		p.service.queue.Untried(p.key.name, picked.Address)
		return nil
	}
	var answer []byte
	s := p.service.server
	select {
	case s.fetches <- struct{}{}:
		defer func() { <-s.fetches }()
	default:
		return nil // so many are asked that each client may as well ask by itself
	}
	err := ask(s.ctx, p.key.network, picked.Address, s.askTimeout, p.service.greeting(p.key.network), func(c net.Conn) (err error) {
		answer, err = r.Fetch(c, question)
		return err
	})
	if err != nil || len(answer) > proto.MaxRetold || !p.service.server.held.All(len(answer)) {
		return nil
	}
	return answer
}

// answered takes in what a server said, and tells those who wait for it. The answer is
// charged to what is held.
func (p *servedPort) answered(a *retoldAnswer, answer []byte) {
	t := &p.retold
	t.mu.Lock()
	waiting := a.waiting
	a.asking, a.waiting = false, nil
	if len(t.next) > 0 {
		t.next[0]()
		t.next = t.next[1:]
	} else {
		t.fetching--
	}
	if answer == nil {
		a.failed = time.Now()
	} else {
		t.drop(p, a)
		a.answer, a.at, a.failed = answer, time.Now(), time.Time{}
	}
	if t.closed {
		t.drop(p, a)
	}
	t.mu.Unlock()
	for _, then := range waiting {
		then(answer)
	}
}

// drop gives an answer up.
func (t *retold) drop(p *servedPort, a *retoldAnswer) {
	p.service.server.held.Give(len(a.answer))
	a.answer = nil
}

// forgetOld drops what nobody asks for any more.
func (p *servedPort) forgetOld() {
	t := &p.retold
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, a := range t.all {
		if !a.asking && time.Since(a.at) > forgetAfter && time.Since(a.failed) > forgetAfter {
			t.drop(p, a)
			delete(t.all, key)
		}
	}
	if !t.others.asking && time.Since(t.others.at) > forgetAfter {
		t.drop(p, &t.others)
	}
	if len(t.all) > 0 || t.others.answer != nil {
		t.sweep.Reset(forgetAfter)
	} else {
		t.sweep = nil
	}
}

// close drops all, for good.
func (t *retold) close(p *servedPort) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, a := range t.all {
		t.drop(p, a)
	}
	t.drop(p, &t.others)
	t.all = nil
	if t.sweep != nil {
		t.sweep.Stop()
	}
}

// retell answers a TCP client who only asks with what a server said to another; false: it
// is to ask itself.
func (p *servedPort) retell(h *heldTCP) bool {
	r, is := p.protocol.(proto.Reteller)
	if !is {
		return false
	}
	q, _, ok := r.Asks(h.sent, p.known.Load().client(netip.AddrPort{}, nil))
	if !ok {
		return false
	}
	told := make(chan []byte, 1)
	answer, ok := p.recall(r, q, func(answer []byte) { told <- answer })
	if !ok {
		return false
	}
	if answer == nil {
		if answer = <-told; answer == nil {
			return false
		}
	}
	defer p.occupy(h).End()
	h.awaitHead(p.headTime())
	if _, err := h.conn.Write(r.Retell(nil, answer, h.sent)); err != nil {
		return true
	}
	p.counts.QueryAnswered()
	h.line.Answered()
	h.answered = true
	h.release(q.Used)
	p.inspectFrom(h, true) // it may ping; who wants more has come to the end
	return true
}

// retellDatagram is retell for a datagram of a client who only asks.
func (u *udpSocket) retellDatagram(datagram []byte, from netip.AddrPort, to netip.Addr) bool {
	p := u.port.Load()
	r, is := p.protocol.(proto.Reteller)
	if !is || len(datagram) > maxQuestion {
		return false
	}
	k := p.known.Load()
	q, v, ok := r.Asks(datagram, k.client(from, nil))
	switch {
	case !ok:
		return false
	case v.Action == proto.Answer:
		return p.mayRecall(r, q) && u.tell(p, v, datagram, from, u.packets.Source(to))
	}
	// What is in them is the loop's only until it receives again.
	datagram, source := bytes.Clone(datagram), u.packets.Source(to)
	tell := func(answer []byte) bool {
		v := proto.Verdict{Action: proto.Answer, Answer: r.Retell(nil, answer, datagram), Proven: r.Proves()}
		return u.tell(p, v, datagram, from, source)
	}
	answer, ok := p.recall(r, q, func(answer []byte) {
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
func (u *udpSocket) tell(p *servedPort, v proto.Verdict, datagram []byte, from netip.AddrPort, source []byte) bool {
	if !p.mayBeAnswered(p.known.Load(), v, datagram, from) {
		return false
	}
	p.counts.QueryAnswered()
	_ = u.packets.Send(v.Answer, source, from)
	return true
}
