package dataplane

import (
	"bytes"
	"io"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// lines is a protocol of lines: "status" is answered without waking, "bad" is
// refused, and "login …" wants the server.
type lines struct{ name string }

func (l lines) Name() string            { return l.name }
func (lines) WakeOn() proto.WakeOn      { return proto.OnData }
func (lines) HoldAtMost() time.Duration { return 0 }
func (lines) Refusal(r proto.Reason, _ []byte, _ proto.Client) []byte {
	return []byte("sorry: " + string(r) + "\n")
}

func (lines) Inspect(head []byte, _ proto.Client) proto.Verdict {
	line, _, ok := bytes.Cut(head, []byte("\n"))
	switch {
	case !ok:
		return proto.Verdict{Action: proto.NeedMore}
	case string(line) == "status":
		return proto.Verdict{Action: proto.Answer, Answer: []byte("asleep\n"), Used: len(line) + 1}
	case bytes.HasPrefix(line, []byte("login")):
		return proto.Verdict{Action: proto.Hold}
	}
	return proto.Verdict{Action: proto.Refuse, Answer: []byte("what?\n")}
}

func withLines(o *Options) {
	o.Protocols = map[v1alpha1.Protocol]proto.Protocol{
		v1alpha1.ProtocolTCP: lines{"tcp"}, v1alpha1.ProtocolUDP: lines{"udp"},
	}
}

func TestAProtocolAnswersWithoutWaking(t *testing.T) {
	r := newRig(t, withLines)
	address := r.serve("game", route.TCP)
	c := dialTCP(t, address)
	write(t, c, "sta")
	write(t, c, "tus\nstatus\n")
	expect(t, c, "asleep\nasleep\n")
	if n := r.operator.count(); n != 0 || r.sessions().Queued != 0 {
		t.Fatalf("a status query made %d wake calls", n)
	}
	// What was answered is not replayed; the rest is, as it was sent.
	write(t, c, "login anna\nmore")
	r.queued(1)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	expect(t, c, "login anna\nmore")
}

func TestAProtocolRefuses(t *testing.T) {
	r := newRig(t, withLines)
	r.route.Hold.Timeout = 50 * time.Millisecond
	address := r.serve("game", route.TCP)
	for sent, want := range map[string]string{
		"bad\n":        "what?\n",
		"login anna\n": "sorry: timeout\n",
	} {
		c := dialTCP(t, address)
		write(t, c, sent)
		got, err := io.ReadAll(c)
		if err != nil || string(got) != want {
			t.Errorf("%q was answered %q, %v; want %q", sent, got, err, want)
		}
	}
	for reason, want := range map[string]float64{"unwanted": 1, "timeout": 1} {
		if got := r.metric("dormouse_resolver_refused_clients_total", map[string]string{"reason": reason}); got != want {
			t.Errorf("%v clients refused as %s, want %v", got, reason, want)
		}
	}
}

func TestAClientThatNeverSaysWhatItWantsIsRefused(t *testing.T) {
	r := newRig(t, withLines)
	c := dialTCP(t, r.serve("game", route.TCP))
	_, _ = c.Write(bytes.Repeat([]byte("x"), proto.MaxHead+1))
	expectGone(t, c)
	if got := r.metric("dormouse_resolver_refused_clients_total", map[string]string{"reason": "unfinished"}); got != 1 {
		t.Errorf("%v clients refused as unfinished, want 1", got)
	}
}

func TestADatagramProtocolAnswersWithoutWaking(t *testing.T) {
	r := newRig(t, withLines)
	address := r.serve("game", route.UDP)
	c := dialUDP(t, address)
	write(t, c, "status\n")
	hear(t, c, "asleep\n")
	write(t, c, "bad\n")
	hear(t, c, "what?\n")
	write(t, c, "no line")
	if n := r.operator.count(); n != 0 || r.server.Clients() != 0 {
		t.Fatalf("queries made %d wake calls", n)
	}
	write(t, c, "login anna\n")
	r.queued(1)
}
