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

// Where all clients of an awake service go through the resolver, what a server said to
// one who only asked is told to all who ask the same for a second. So a storm of
// questions costs the game one a second for each of a few kinds.

const (
	// FreshFor is how long an answer is told without asking again, and staleFor while
	// the server is being asked again.
	FreshFor = time.Second
	staleFor = 3 * time.Second
	// forgetAfter is how long an answer is kept that nobody asks for.
	forgetAfter = 10 * time.Second
	// MaxQuestions bounds the kinds of questions of a port whose answers are kept: names
	// and versions are the client's to choose. Who asks for more asks the server itself;
	// where there are more than that a second, they are told one answer, to one of them.
	MaxQuestions = 16
	// maxFetching bounds how many answers a port's servers are asked for at once.
	maxFetching = 4
	// parallelFetches bounds how many all services' servers are asked for at once.
	parallelFetches = 256
	// maxAsking bounds how many wait for an answer.
	maxAsking = 1024
)

// Answers are what a port's backends said, to be told again.
type Answers struct {
	port *Port

	mu  sync.Mutex
	all map[string]*sharedAnswer
	// others is told those whose questions there is no room for.
	others sharedAnswer
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

// sharedAnswer is one of them. Answer is never changed.
type sharedAnswer struct {
	answer []byte
	// at is when it came, and failed when none came since.
	at, failed time.Time
	asking     bool
	waiting    []func(answer []byte)
}

// Recall gives what a server said lately to who asked the same. Where that isn't known,
// or is too old, a server is asked, and then is told; nil says that none answered. Ok is
// false where the client is to ask itself.
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

// MayRecall reports whether who is about to ask will likely be told by Recall. A server whose
// answer can't be told again, because it comes in parts for instance, says so at once.
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

// entry is what is known of a question; nil: there is no room to know anything.
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

// mayAskItself reports whether a client whose question there is no room for may ask the server
// itself.
func (t *Answers) mayAskItself(now time.Time) bool {
	if now.Sub(t.second) >= time.Second {
		t.second, t.more = now, 0
	}
	t.more++
	return t.more <= MaxQuestions
}

// ask has a server asked, now or in turn, unless one is; false: not again so soon.
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

// fetch asks a server; nil: it didn't answer, or there is no room for what it said.
func (t *Answers) fetch(r proto.Reteller, question []byte) []byte {
	p := t.port
	picked, ok := p.Queue.PickForQuery(p.Key.Name)
	switch {
	case !ok:
		return nil
	case picked.Unproven:
		// That it is up the client's own datagram finds out.
		p.Queue.Untried(p.Key.Name, picked.Address)
		return nil
	}
	var answer []byte
	select {
	case p.fetches <- struct{}{}:
		defer func() { <-p.fetches }()
	default:
		return nil // so many are asked that each client may as well ask by itself
	}
	err := query.Backend(p.Context, p.Key.Network, picked.Address, p.QueryTimeout, query.Greeting(p.Route(), p.Key.Network), func(c net.Conn) (err error) {
		answer, err = r.Fetch(c, question)
		return err
	})
	if err != nil || len(answer) > proto.MaxRetold || !p.Held.All(len(answer)) {
		return nil
	}
	return answer
}

// answered takes in what a server said, and tells those who wait for it. The answer is
// charged to what is held.
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

// drop gives an answer up.
func (t *Answers) drop(a *sharedAnswer) {
	t.port.Held.Give(len(a.answer))
	a.answer = nil
}

// forgetOld drops what nobody asks for any more.
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

// close drops all, for good.
func (t *Answers) close() {
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

// Kept is how many kinds of questions have an answer, or are asked now, and waiting is how
// many clients wait for one.
func (t *Answers) Kept() (kinds, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.all {
		waiting += len(a.waiting)
	}
	return len(t.all), waiting
}
