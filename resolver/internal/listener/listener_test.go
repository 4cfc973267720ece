package listener

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// deaf is a socket that can't be waited for.
type deaf struct {
	err    error
	closed chan struct{}
}

func (s *deaf) Serve() error           { return s.err }
func (s *deaf) Close() error           { close(s.closed); return nil }
func (*deaf) Cut()                     {}
func (s *deaf) Ended() <-chan struct{} { return s.closed }

// A port that is open and to which nobody listens isn't said to listen: it is closed,
// and tried again.
func TestAPortThatIsDeafIsTriedAgain(t *testing.T) {
	failure := errors.New("no watch is left")
	var mu sync.Mutex
	var opened []*deaf
	l := Start(logr.Discard, func() (Socket, error) {
		mu.Lock()
		defer mu.Unlock()
		s := &deaf{closed: make(chan struct{})}
		if len(opened) < 2 {
			s.err = failure
		}
		opened = append(opened, s)
		return s, nil
	})
	if listening, err := l.State(); listening || !errors.Is(err, failure) {
		t.Errorf("listening %t, %v; want false and why", listening, err)
	}
	for began := time.Now(); ; <-time.After(time.Millisecond) {
		if listening, err := l.State(); listening {
			if err != nil {
				t.Errorf("it listens and says %v", err)
			}
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatal("it never listens")
		}
	}
	l.Close()
	l.Wait()
	if len(opened) != 3 {
		t.Errorf("it was opened %d times, want 3", len(opened))
	}
	for _, s := range opened {
		<-s.closed
	}
}
