package dataplane

import (
	"net"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/proto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// hasty is Minecraft with other times.
type hasty struct {
	minecraft.Protocol
	ask, answer time.Duration
}

func (h hasty) HoldAtMost() time.Duration             { return h.ask + h.answer }
func (h hasty) Patience() (ask, answer time.Duration) { return h.ask, h.answer }
func hurried(ask, answer time.Duration) func(o *Options) {
	return func(o *Options) {
		o.Protocols = map[v1alpha1.Protocol]proto.Protocol{v1alpha1.ProtocolMinecraft: hasty{ask: ask, answer: answer}}
	}
}

// question reads one, and gives its number.
func question(t *testing.T, frame []byte) byte {
	t.Helper()
	if len(frame) < 3 || frame[0] != 4 || !strings.HasSuffix(string(frame), "dormouse:wait") {
		t.Fatalf("a client that waits got %q, want a Login Plugin Request", frame)
	}
	return frame[1]
}

// comes starts a server, and returns once it has been connected to.
func (r *rig) comes(text string) {
	r.t.Helper()
	connected := make(chan struct{}, 1)
	server := freeAddress(r.t, route.TCP)
	listenTCP(r.t, server, func(c *net.TCPConn) {
		select {
		case connected <- struct{}{}:
		default:
		}
		tag(text)(c)
	})
	r.backend(server, true)
	<-connected
}

func TestAPlayerWhoAnswersIsHeldForLonger(t *testing.T) {
	r := newRig(t, hurried(20*time.Millisecond, patience))
	address := r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft), func(p *route.Port) { p.ByConnect = true })
	login := recorded(t, v1alpha1.ProtocolMinecraft, "login_765")
	c := dialTCP(t, address)
	write(t, c, login)
	for n := byte(1); n <= 5; n++ {
		if got := question(t, readFrame(t, c)); got != n {
			t.Fatalf("the question is number %d, want %d", got, n)
		}
		// In parts, as networks deliver.
		write(t, c, "\x03\x02")
		write(t, c, string([]byte{n, 0}))
	}
	// The sixth is answered only when the server is there already.
	question(t, readFrame(t, c))
	r.comes("hi")
	write(t, c, "\x03\x02\x06\x00")
	expect(t, c, "hi"+login)
	write(t, c, "on")
	expect(t, c, "on")
	if got := r.refused(proto.TimedOut); got != 0 {
		t.Errorf("%v clients were refused", got)
	}
}

func TestAPlayerWhoDoesntAnswerIsSentAway(t *testing.T) {
	r := newRig(t, hurried(20*time.Millisecond, 20*time.Millisecond))
	address := r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft))
	for name, c := range map[string]struct{ login, says string }{
		"silent":               {"login_765", ""},
		"says something else":  {"login_765", "\x02\x01\x01"},
		"too old to be asked":  {"login_47", ""},
		"answers another time": {"login_765", "\x03\x02\x63\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			before := r.refused(proto.TimedOut)
			client := dialTCP(t, address)
			write(t, client, recorded(t, v1alpha1.ProtocolMinecraft, c.login))
			frame := readFrame(t, client)
			if c.login != "login_47" {
				question(t, frame)
				write(t, client, c.says)
				frame = readFrame(t, client)
			}
			if !strings.Contains(string(frame), "Join again") {
				t.Errorf("the last word is %q", frame)
			}
			expectEnd(t, client)
			r.queued(0)
			if got := r.refused(proto.TimedOut) - before; got != 1 {
				t.Errorf("%v refusals were counted, want 1", got)
			}
		})
	}
}

// What a client says unasked is the server's to judge.
func TestWhatIsNoAnswerReachesTheServer(t *testing.T) {
	r := newRig(t, hurried(20*time.Millisecond, patience))
	address := r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft), func(p *route.Port) { p.ByConnect = true })
	login := recorded(t, v1alpha1.ProtocolMinecraft, "login_765")
	c := dialTCP(t, address)
	write(t, c, login)
	question(t, readFrame(t, c))
	r.comes("hi")
	write(t, c, "\x03\x02\x01\x00"+"and more")
	expect(t, c, "hi"+login+"and more")
}
