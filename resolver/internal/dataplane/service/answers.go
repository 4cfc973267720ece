package service

import (
	"bytes"
	"net"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/query"
)

// Where all clients of an awake service go through the resolver, a backend's answer to a query
// is given to all who ask the same for a second. So a storm of queries costs the game one a
// second for each of a few kinds.

const (
	// FreshFor is how long an answer is given without asking again, and staleFor while a
	// backend is being asked again.
	FreshFor = time.Second
	staleFor = 3 * time.Second
	// forgetAfter is how long an answer is kept that nobody asks for.
	forgetAfter = 10 * time.Second
	// MaxQuestions bounds the kinds of questions of a port whose answers are kept, because
	// clients choose the names and versions in them. Beyond that clients ask a backend
	// themselves; beyond that many in a second they all get one backend's answer to one of
	// them.
	MaxQuestions = 16
	// maxFetching bounds how many questions a port's backends are asked at once.
	maxFetching = 4
	// parallelFetches bounds how many the backends of all services are asked at once.
	parallelFetches = 256
	// maxAsking bounds how many clients wait for an answer.
	maxAsking = 1024
)

// Answers are a port's backends' answers, to be given again.
type Answers struct {
	port *Port

	mu  sync.Mutex
	all map[string]*sharedAnswer
	// others is the answer for questions that there is no room for.
	others sharedAnswer
	// fetching counts the questions that are being asked, and next are the following ones.
	fetching int
	next     []func()
	// more counts the clients that asked a backend themselves within this second, because there
	// was no room for their questions.
	more   int
	second time.Time
	closed bool
	sweep  *time.Timer
}

// sharedAnswer is one answer. Its bytes are never changed.
type sharedAnswer struct {
	answer []byte
	// at is when the answer came, and failed when a backend last gave none since.
	at, failed time.Time
	asking     bool
	waiting    []func(answer []byte)
}

// Recall returns a backend's recent answer to the same question. Where there is none, or it is
// too old, a backend is asked, and then is called with the answer; nil: no backend answered. Ok
// is false where the client is to ask a backend itself.
func (t *Answers) Recall(r proto.Reteller, q proto.Question, then func(answer []byte)) (answer []byte, ok bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.entry(q.Key)
	switch {
	case t.closed, a == nil && t.mayAskItself(now):
		return nil, false
	case a == nil:
		a = &t.others
	}
	age := now.Sub(a.at)
	if a.answer != nil && age < FreshFor {
		return a.answer, true
	}
	asked := t.ask(a, r, q, now)
	switch {
	case a.answer != nil && age < staleFor:
		return a.answer, true
	case !asked, len(a.waiting) >= maxAsking:
		return nil, false
	}
	a.waiting = append(a.waiting, then)
	return nil, true
}

// MayRecall reports whether Recall is likely to have an answer. Answers that can't be given
// again, because they come in parts for instance, are never recalled.
func (t *Answers) MayRecall(r proto.Reteller, q proto.Question) bool {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.entry(q.Key)
	switch {
	case a == nil:
		return false
	case a.answer != nil && now.Sub(a.at) < staleFor:
		return true
	}
	return t.ask(a, r, q, now) && a.failed.IsZero()
}

// entry is the answer's entry for a question; nil: there is no room for it.
func (t *Answers) entry(key string) *sharedAnswer {
	if a := t.all[key]; a != nil || t.closed || len(t.all) >= MaxQuestions {
		return a
	}
	if t.all == nil {
		t.all = map[string]*sharedAnswer{}
	}
	if t.sweep == nil {
		t.sweep = time.AfterFunc(forgetAfter, t.forgetOld)
	}
	a := &sharedAnswer{}
	t.all[key] = a
	return a
}

// mayAskItself reports whether a client may ask a backend itself because there is no room for
// its question.
func (t *Answers) mayAskItself(now time.Time) bool {
	if now.Sub(t.second) >= time.Second {
		t.second, t.more = now, 0
	}
	t.more++
	return t.more <= MaxQuestions
}

// ask has a backend asked, now or in turn, unless one is being asked; false: the last failure
// is too recent.
func (t *Answers) ask(a *sharedAnswer, r proto.Reteller, q proto.Question, now time.Time) bool {
	switch {
	case a.asking:
		return true
	case now.Sub(a.failed) < FreshFor:
		return false
	}
	a.asking = true
	question := bytes.Clone(q.Ask)
	fetch := func() {
		t.port.Running.Go(func() {
			defer utilruntime.HandleCrash()
			t.answered(a, t.fetch(r, question))
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

// fetch asks a backend; nil: it didn't answer, or there is no room for its answer.
func (t *Answers) fetch(r proto.Reteller, question []byte) []byte {
	p := t.port
	picked, ok := p.Queue.PickForQuery(p.Key.PortID)
	switch {
	case !ok:
		return nil
	case picked.Unproven:
		// The client's own datagram finds out whether the backend is up.
		p.Queue.Untried(p.Key.PortID, picked.Address)
		return nil
	}
	var answer []byte
	select {
	case p.fetches <- struct{}{}:
		defer func() { <-p.fetches }()
	default:
		return nil // so many questions are open that each client may as well ask a backend itself
	}
	err := query.Backend(p.Context, p.Route(), p.Key.Network, picked.Address, p.QueryTimeout, func(c net.Conn) (err error) {
		answer, err = r.Fetch(c, question)
		return err
	})
	if err != nil || len(answer) > proto.MaxRetold || !p.Held.All(len(answer)) {
		return nil
	}
	return answer
}

// answered takes in a backend's answer, and gives it to those who wait for it. The answer is
// charged to the budget of what is held.
func (t *Answers) answered(a *sharedAnswer, answer []byte) {
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
		t.drop(a)
		a.answer, a.at, a.failed = answer, time.Now(), time.Time{}
	}
	if t.closed {
		t.drop(a)
	}
	t.mu.Unlock()
	for _, then := range waiting {
		then(answer)
	}
}

// drop removes an answer.
func (t *Answers) drop(a *sharedAnswer) {
	t.port.Held.Give(len(a.answer))
	a.answer = nil
}

// forgetOld drops the answers that nobody asks for any more.
func (t *Answers) forgetOld() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, a := range t.all {
		if !a.asking && time.Since(a.at) > forgetAfter && time.Since(a.failed) > forgetAfter {
			t.drop(a)
			delete(t.all, key)
		}
	}
	if !t.others.asking && time.Since(t.others.at) > forgetAfter {
		t.drop(&t.others)
	}
	if len(t.all) > 0 || t.others.answer != nil {
		t.sweep.Reset(forgetAfter)
	} else {
		t.sweep = nil
	}
}

// close drops all answers, for good.
func (t *Answers) close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, a := range t.all {
		t.drop(a)
	}
	t.drop(&t.others)
	t.all = nil
	if t.sweep != nil {
		t.sweep.Stop()
	}
}

// Kept is how many kinds of questions have an answer or are being asked, and how many clients
// wait for one.
func (t *Answers) Kept() (kinds, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.all {
		waiting += len(a.waiting)
	}
	return len(t.all), waiting
}
