package page

import (
	"net/http"
	"sync"
)

// streams counts the live streams, so that neither all nor one caller's take the operator's memory.
type streams struct {
	most, ofCaller int

	mu      sync.Mutex
	open    int
	callers map[string]int
}

// admit takes a stream's place, until done is called.
func (s *streams) admit(caller string) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.callers[caller] >= s.ofCaller {
		return nil, Refuse(http.StatusTooManyRequests,
			"You have %d pages open that update by themselves, and may have no more. Close one.", s.ofCaller)
	}
	if s.open >= s.most {
		return nil, Refuse(http.StatusTooManyRequests, "Too many people look at pages that update by themselves.")
	}
	if s.callers == nil {
		s.callers = map[string]int{}
	}
	s.open++
	s.callers[caller]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		if s.callers[caller]--; s.callers[caller] == 0 {
			delete(s.callers, caller)
		}
	}, nil
}
