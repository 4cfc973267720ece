package dataplane

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/proto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// patient is Minecraft with more time for what follows than a test's machine takes.
type patient struct{ minecraft.Protocol }

func (p patient) Inspect(head []byte, c proto.Client) proto.Verdict {
	v := p.Protocol.Inspect(head, c)
	if v.After > 0 {
		v.After = time.Minute
	}
	return v
}

func withPatience(o *Options) {
	o.Protocols = map[v1alpha1.Protocol]proto.Protocol{v1alpha1.ProtocolMinecraft: patient{}}
}

// A login whose length is 254 begins like a ping of the oldest clients, and may come
// in pieces.
func TestALoginThatBeginsLikeAnOldPingIsHeld(t *testing.T) {
	t.Parallel()
	// The length, the packet's number, the version, the host, the port, and the wish to
	// play.
	host := strings.Repeat("a", 247)
	login := "\xfe\x01\x00\x2f\xf7\x01" + host + "\x63\xdd\x02" + "\x07\x00\x05Hazel"
	r := newRig(t, withPatience)
	address := r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft))
	for i, cut := range []int{1, 2, 3} {
		c := dialTCP(t, address)
		write(t, c, login[:cut])
		<-time.After(50 * time.Millisecond) // on its way
		write(t, c, login[cut:])
		r.queued(int32(i + 1))
	}
	r = newRig(t)
	address = r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft))
	for ping, newer := range map[string]bool{"\xfe": false, "\xfe\x01": true} {
		c := dialTCP(t, address)
		write(t, c, ping)
		got, err := io.ReadAll(c)
		if err != nil || len(got) < 5 || got[0] != 0xff || strings.Contains(string(got[3:]), "\x00\xa7\x001") != newer {
			t.Errorf("a ping of %x got %q, %v", ping, got, err)
		}
	}
}

// So it is where the servers that are up answer who only asks.
func TestALoginThatBeginsLikeAnOldPingPlaysBehindTheResolver(t *testing.T) {
	t.Parallel()
	r := newRig(t, withPatience)
	address := r.serve("game", route.TCP, probed, speaks(v1alpha1.ProtocolMinecraft))
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	r.servers(serving(server, "pod-a"))
	r.balanced(v1alpha1.BalanceSpread)
	r.players("a", 0, 5)
	host := strings.Repeat("a", 247)
	login := "\xfe\x01\x00\x2f\xf7\x01" + host + "\x63\xdd\x02" + "\x07\x00\x05Hazel"
	c := dialTCP(t, address)
	write(t, c, login[:1])
	<-time.After(50 * time.Millisecond)
	write(t, c, login[1:])
	r.eventually("the player has a session", func() bool { return r.sessions().Sessions == 1 })
}
