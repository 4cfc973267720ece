package scalewebhook

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// idleAfter is how long an endpoint is remembered that isn't asked.
const idleAfter = 15 * time.Minute

// endpointState is what is kept of an endpoint between questions.
type endpointState struct {
	key endpointKey
	// id is its name among those that wait for their turn.
	id        string
	circuit   circuit
	transport *http.Transport

	// users is how many questions use it, waiting ones included. The table's lock guards it and
	// used.
	users int
	used  time.Time
}

// endpoints are the endpoints that are remembered. Their number is bounded in all and for each
// namespace: the one that wasn't used for longest makes place, and loses no more than its idle
// connections and the memory of its failures. Where all are asked a namespace that has fewer than
// free of them may have one more, until nobody asks it.
type endpoints struct {
	most, each, free int

	mu    sync.Mutex
	all   map[endpointKey]*endpointState
	by    map[string]int
	swept time.Time
	made  int
}

func newEndpoints(most, each, free int) *endpoints {
	return &endpoints{most: most, each: each, free: free, all: map[endpointKey]*endpointState{}, by: map[string]int{}}
}

// acquire returns an endpoint's state. create makes its connections if there is none.
// release gives it back.
func (t *endpoints) acquire(now time.Time, key endpointKey, create func() (*http.Transport, error)) (*endpointState, error) {
	if s := t.find(now, key); s != nil {
		return s, nil
	}
	// Outside of the lock: a caBundle may be long.
	transport, err := create()
	if err != nil {
		return nil, err
	}
	return t.add(now, key, transport)
}

func (t *endpoints) find(now time.Time, key endpointKey) *endpointState {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep(now)
	s := t.all[key]
	if s != nil {
		s.users++
		s.used = now
	}
	return s
}

func (t *endpoints) add(now time.Time, key endpointKey, transport *http.Transport) (*endpointState, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.all[key]
	if s == nil {
		if !t.makePlace(key.namespace) {
			return nil, failure(Busy, "Too many webhooks are asked at once: it is tried again")
		}
		t.made++
		s = &endpointState{key: key, id: strconv.Itoa(t.made), transport: transport}
		t.all[key] = s
		t.by[key.namespace]++
	}
	s.users++
	s.used = now
	return s, nil
}

func (t *endpoints) release(now time.Time, s *endpointState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.users--
	s.used = now
	if s.users == 0 && len(t.all) > t.most {
		t.forget(s)
	}
}

// open returns the error of an endpoint's open circuit, if it is open.
func (t *endpoints) open(now time.Time, key endpointKey) *Error {
	t.mu.Lock()
	s := t.all[key]
	t.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.circuit.state(now)
}

// sweep forgets idle endpoints, once a minute at most.
func (t *endpoints) sweep(now time.Time) {
	if now.Sub(t.swept) < time.Minute {
		return
	}
	t.swept = now
	for _, s := range t.all {
		if s.users == 0 && now.Sub(s.used) >= idleAfter {
			t.forget(s)
		}
	}
}

// makePlace makes place for one more of a namespace, and reports whether there is.
func (t *endpoints) makePlace(namespace string) bool {
	own := t.by[namespace] >= t.each
	if !own && len(t.all) < t.most {
		return true
	}
	var oldest *endpointState
	for _, s := range t.all {
		if s.users > 0 || own && s.key.namespace != namespace {
			continue
		}
		if oldest == nil || s.used.Before(oldest.used) {
			oldest = s
		}
	}
	if oldest == nil {
		return t.by[namespace] < t.free
	}
	t.forget(oldest)
	return true
}

func (t *endpoints) forget(s *endpointState) {
	delete(t.all, s.key)
	if t.by[s.key.namespace]--; t.by[s.key.namespace] == 0 {
		delete(t.by, s.key.namespace)
	}
	s.transport.CloseIdleConnections()
}

// close ends all idle connections.
func (t *endpoints) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all {
		s.transport.CloseIdleConnections()
	}
}
