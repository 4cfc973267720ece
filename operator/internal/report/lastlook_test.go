package report

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/internal/tokenfile"
)

// twoReplicas answer on one port, as pods do.
func twoReplicas(t *testing.T) (one, two *replica) {
	c := cluster(t)
	second := pod("system", "operator-2", "pod-11", nil)
	second.Labels, second.Status.PodIP = map[string]string{"app": "operator"}, "127.0.0.2"
	if err := c.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	one = start(t, c, "127.0.0.1:0")
	two = start(t, c, fmt.Sprintf("127.0.0.2:%d", one.peers.port))
	one.peers.self, two.peers.self = "operator-1", "operator-2"
	for _, p := range []*Peers{one.peers, two.peers} {
		p.token = tokenfile.New(writeFile(t, "operator\n"))
	}
	return one, two
}

// leave makes a report whose answer nobody waits for.
func (r *replica) leave(said *reportapi.Report) {
	text, err := json.Marshal(said)
	if err != nil {
		r.t.Fatal(err)
	}
	go func() { _, _, _ = r.post("good", text) }()
}

// looking has a replica look in the background.
func (r *replica) looking() <-chan reportapi.Looked {
	done := make(chan reportapi.Looked, 1)
	server := r.read()
	go func() { done <- r.peers.Look(r.t.Context(), server, "pod-1") }()
	return done
}

// A look reaches the sidecar through whichever replica holds its report, and only a report that
// repeats its word is the reply.
func TestALookReachesTheSidecarAndItsReplyTheReplicaThatAsks(t *testing.T) {
	for asks := range 2 {
		one, two := twoReplicas(t)
		asking := []*replica{one, two}[asks]
		held := one.hold(next(6))
		done := asking.looking()
		answer := <-held
		if answer.Look == "" || answer.Version == "" {
			t.Fatalf("the held report is answered with %+v, want a look", answer)
		}
		old := next(7, players(0))
		old.Seen, old.Looked = answer.Version, "of before"
		reply := next(8, players(2))
		reply.Seen, reply.Looked, reply.DeletionAllowed = answer.Version, answer.Look, false
		one.leave(old)
		one.eventually("the older word is heard", func() bool { return one.table.last("server-1").report.Sequence == 7 })
		// The reply comes by another connection, and so to another replica.
		if again := two.say(reply); again.Look != "" {
			t.Errorf("it is asked to look again: %+v", again)
		}
		want := reportapi.Looked{Replied: true, Players: 2}
		if looked := <-done; looked != want {
			t.Errorf("looked %+v, want %+v", looked, want)
		}
	}
}

// A sidecar of an earlier version, or one that is cut off, doesn't reply: nobody waits for long,
// and nothing is left of the look.
func TestALookThatNobodyRepliesToEnds(t *testing.T) {
	one, two := twoReplicas(t)
	held := one.hold(next(6))
	began := time.Now()
	done := two.looking()
	answer := <-held
	again := next(7)
	again.Seen = answer.Version
	one.leave(again)
	if looked := <-done; looked.Replied {
		t.Errorf("looked %+v though nobody replied", looked)
	}
	if took := time.Since(began); took < reportapi.LookTime || took > within {
		t.Errorf("it took %s", took)
	}
	for _, r := range []*replica{one, two} {
		r.eventually("no look is left", func() bool {
			word, _ := r.table.lastAnswer("server-1")
			return word == ""
		})
	}
}

// patient has a replica look in the background as for an eviction.
func (r *replica) patient() <-chan reportapi.Looked {
	done, server := make(chan reportapi.Looked, 1), r.read()
	go func() { done <- r.peers.LookPatiently(r.t.Context(), server, "pod-1") }()
	return done
}

// play reports as a sidecar on whose game two play, until the test ends.
func (r *replica) play() {
	seen, look := "", ""
	for sequence := uint64(1); ; sequence++ {
		said := next(sequence, players(2))
		said.Seen, said.Looked, said.DeletionAllowed = seen, look, false
		text, err := json.Marshal(said)
		if err != nil {
			return
		}
		code, answer, err := r.post("good", text)
		var a reportapi.Answer
		if err != nil || code != 200 || json.Unmarshal(answer, &a) != nil {
			return
		}
		seen, look = a.Version, a.Look
	}
}

// Whoever evicts waits for a sidecar whose replica has just ended.
func TestAnEvictionWaitsForASidecarOnItsWay(t *testing.T) {
	_, two := twoReplicas(t)
	two.peers.lookTime = 500 * time.Millisecond
	done := two.patient()
	word := func() string {
		word, _ := two.table.lastAnswer("server-1")
		return word
	}
	var first string
	two.eventually("it is asked", func() bool { first = word(); return first != "" })
	two.eventually("it is asked again", func() bool { return word() != "" && word() != first })
	go two.play()
	want := reportapi.Looked{Replied: true, Players: 2}
	if looked := <-done; looked != want {
		t.Errorf("looked %+v, want %+v", looked, want)
	}
}

// It doesn't wait for one that is there and doesn't reply.
func TestAnEvictionDoesNotWaitForAGameThatHangs(t *testing.T) {
	one, two := twoReplicas(t)
	two.peers.lookTime = 2 * reportapi.LookTime // the replica that has the report answers in its own time
	one.hold(next(6))
	began := time.Now()
	want := reportapi.Looked{Held: true}
	if looked := <-two.patient(); looked != want {
		t.Errorf("looked %+v, want %+v", looked, want)
	}
	if took := time.Since(began); took >= 2*two.peers.lookTime {
		t.Errorf("it took %s", took)
	}
}

// A sidecar that is nowhere isn't waited for without end.
func TestAnEvictionDoesNotWaitWithoutEnd(t *testing.T) {
	_, two := twoReplicas(t)
	two.peers.lookTime = 500 * time.Millisecond
	began := time.Now()
	if looked := two.peers.LookPatiently(t.Context(), two.read(), "pod-1"); looked != (reportapi.Looked{}) {
		t.Errorf("looked %+v", looked)
	}
	if took := time.Since(began); took < reportapi.ReturnTime || took > reportapi.ReturnTime+within {
		t.Errorf("it took %s, want a little over %s", took, reportapi.ReturnTime)
	}
}

// Where many ask already there is no use in asking again at once.
func TestTooManyLooksAreNotTakenForASidecarOnItsWay(t *testing.T) {
	table, s := newTable(), server()
	for i := range maxLooks {
		if table.ask(s.UID, client.ObjectKeyFromObject(s), fmt.Sprint(i)) == nil {
			t.Fatalf("look %d is refused", i)
		}
	}
	if looked := table.await(t.Context(), s, "pod-1", "one more"); looked != (reportapi.Looked{Held: true}) {
		t.Errorf("looked %+v", looked)
	}
}

// What the sidecar said last counts where it doesn't reply, and denies the deletion: the label may
// not say so yet.
func TestALastDenialCountsWithoutAReply(t *testing.T) {
	for _, denied := range []bool{true, false} {
		one, two := twoReplicas(t)
		last := next(6, players(3))
		last.DeletionAllowed = !denied
		held := one.hold(last)
		// The replica that has the report answers in its own time.
		two.peers.lookTime = 2 * reportapi.LookTime
		if denied {
			two.peers.lookTime = time.Minute
		}
		done := two.looking()
		<-held
		want := reportapi.Looked{Held: true}
		if denied {
			want = reportapi.Looked{Replied: true, Players: 3}
		}
		if looked := <-done; looked != want {
			t.Errorf("looked %+v, want %+v", looked, want)
		}
	}
}

// A look at a Server that nobody has reported for leaves nothing behind.
func TestALookAtASilentServerLeavesNothing(t *testing.T) {
	one, two := twoReplicas(t)
	if looked := <-two.looking(); looked.Replied {
		t.Errorf("looked %+v", looked)
	}
	for _, r := range []*replica{one, two} {
		r.eventually("no entry is left", func() bool {
			r.table.mu.Lock()
			defer r.table.mu.Unlock()
			return len(r.table.entries) == 0
		})
	}
}

// The Pod that replies is the one that is to be evicted.
func TestALookIsNotAnsweredByAFormerPod(t *testing.T) {
	one, _ := twoReplicas(t)
	held := one.hold(next(6))
	server := one.read()
	done := make(chan reportapi.Looked, 1)
	go func() { done <- one.peers.Look(t.Context(), server, "pod-1b") }()
	answer := <-held
	reply := next(7)
	reply.Seen, reply.Looked = answer.Version, answer.Look
	one.say(reply)
	if looked := <-done; looked.Replied {
		t.Errorf("looked %+v, of another Pod", looked)
	}
}

func TestWhoMayHaveASidecarLook(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0")
	for name, c := range map[string]struct {
		token, query string
		code         int
	}{
		"a sidecar":                 {"good", "?namespace=games&server=lobby-1&word=w", 401},
		"nobody":                    {"", "?namespace=games&server=lobby-1&word=w", 401},
		"a namespace that is none":  {"operator", "?namespace=../x&server=lobby-1&word=w", 400},
		"no word":                   {"operator", "?namespace=games&server=lobby-1", 400},
		"a Server that isn't there": {"operator", "?namespace=games&server=none&word=w", 404},
		"the operator":              {"operator", "?namespace=games&server=lobby-1&word=w", 200},
	} {
		t.Run(name, func(t *testing.T) {
			if code, text := r.get(c.token, reportapi.LookPath+c.query); code != c.code {
				t.Errorf("answered %d %s, want %d", code, text, c.code)
			}
		})
	}
}
