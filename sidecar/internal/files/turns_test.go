package files

import (
	"context"
	"net/netip"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/crypto/ssh"
)

// queued are how many wait for their turn.
func (t *turns) queued() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting)
}

func TestWhosePasswordIsLookedAtNext(t *testing.T) {
	recent := func(tries int) *turn { return &turn{recent: true, tries: tries, user: "root"} }
	stranger := func(tries int, user string) *turn { return &turn{tries: tries, user: user} }
	for name, c := range map[string]struct {
		waiting []*turn
		want    []int
	}{
		"who is recent goes first":                   {[]*turn{stranger(1, "a"), recent(5), stranger(1, "b")}, []int{1, 2, 0}},
		"whose address has tried less":               {[]*turn{stranger(2, "a"), stranger(1, "a"), stranger(3, "a")}, []int{1, 0, 2}},
		"also of those that are recent":              {[]*turn{recent(2), recent(1)}, []int{1, 0}},
		"whose user fewer ask for":                   {[]*turn{stranger(1, "alice"), stranger(1, "root"), stranger(1, "root")}, []int{0, 2, 1}},
		"of equals the newest, who has time to wait": {[]*turn{stranger(1, "a"), stranger(1, "a"), stranger(1, "a")}, []int{2, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			q := newTurns(1)
			if !q.take(t.Context(), &turn{}) {
				t.Fatal("nobody waits, and it has no turn")
			}
			came := make(chan int)
			for i, w := range c.waiting {
				go func() {
					if q.take(context.Background(), w) {
						came <- i
					}
				}()
				for q.queued() != i+1 {
					runtime.Gosched()
				}
			}
			for _, want := range c.want {
				q.leave()
				if got := <-came; got != want {
					t.Fatalf("%d is next, want %d of %v", got, want, c.want)
				}
			}
			q.leave()
			if q.free != 1 || q.queued() != 0 {
				t.Errorf("%d are free at the end, and %d wait", q.free, q.queued())
			}
		})
	}
}

// A connection that ended has no turn, and keeps none.
func TestWhoEndedHasNoTurn(t *testing.T) {
	for range 100 {
		q := newTurns(1)
		q.take(t.Context(), &turn{})
		ctx, end := context.WithCancel(t.Context())
		gone := make(chan bool)
		go func() {
			has := q.take(ctx, &turn{})
			if has {
				q.leave()
			}
			gone <- has
		}()
		go end()
		q.leave()
		<-gone
		if q.free != 1 || q.queued() != 0 {
			t.Fatalf("%d are free, and %d wait", q.free, q.queued())
		}
	}
}

// Strangers of a thousand addresses each try a password, and the turns are all taken.
func TestStrangersKeepNoKnownUserOut(t *testing.T) {
	w := newWorld(t, nil)
	w.login()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for range atOnce {
		w.turns.take(ctx, &turn{})
	}
	for i := range 1000 {
		go w.turns.take(ctx, &turn{tries: 0, user: strconv.Itoa(i)}) // fewer than the user's
	}
	w.until("all wait", func() bool { return w.turns.queued() == 1000 })
	// A key waits for no password.
	c, err := w.dial("127.0.0.9", "bob", ssh.PublicKeys(w.bob))
	check(t, err)
	_ = c.Close()
	in := make(chan error)
	go func() {
		_, err := w.dial("127.0.0.1", "alice", ssh.Password(goodPassword))
		in <- err
	}()
	w.until("the user waits", func() bool { return w.turns.queued() == 1001 })
	w.turns.leave()
	check(t, <-in)
	if n := w.turns.queued(); n != 999 {
		t.Errorf("%d wait, want 999: the turn of the user's is another's again", n)
	}
}

// Connections of strangers make room for each other first.
func TestAKnownUsersConnectionIsTheLastToMakeRoom(t *testing.T) {
	l := &lobby{most: 3, each: 2}
	ended := ""
	admit := func(name string, recent bool) {
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(len(ended) + len(l.all))}), 32)
		l.admit(address, recent, func() { ended += name })
	}
	admit("k", true)
	for _, name := range []string{"a", "b", "c", "d"} {
		admit(name, false)
	}
	if ended != "ab" {
		t.Errorf("%q made room, want those of strangers, the oldest first", ended)
	}
	for _, name := range []string{"l", "m", "n"} {
		admit(name, true)
	}
	if ended != "abcdk" {
		t.Errorf("%q made room, want the recent ones, too, once there are no others", ended)
	}
}
