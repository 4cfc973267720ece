package dataplane

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// askedAgain asks for the status once more on a connection that had one.
const askedAgain = "\x01\x00"

// A connection gets one status: else 64 KB of requests would fetch megabytes.
func TestAConnectionGetsOneStatus(t *testing.T) {
	r := newRig(t)
	own := r.serve("mc", route.TCP, func(p *route.Port) { p.Protocol, p.ByConnect = v1alpha1.ProtocolMinecraft, true })
	s := newShared(t)
	s.service("survival", v1alpha1.ProtocolMinecraft, "a.example.com")
	for name, c := range map[string]struct {
		address, host string
	}{
		"of a service": {own, "x.example.com"}, "of a service by its front": {s.address, "a.example.com"}, "of nobody": {s.address, "nobody.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			client := dialTCP(t, c.address)
			write(t, client, status(c.host))
			minecraftStatus(t, client)
			write(t, client, askedAgain)
			_ = client.SetReadDeadline(time.Now().Add(patience))
			if n, err := io.Copy(io.Discard, client); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("who asks again gets %d bytes, %v; want the end", n, err)
			}
		})
	}
}

// Strangers at a front keep their places, and files, until they are gone.
func TestStrangersAtAFrontAreBounded(t *testing.T) {
	const maxFiles = 64
	number := freePort(t, route.TCP)
	s := &shared{
		rig: newRig(t, func(o *Options) { o.MaxFiles = maxFiles }), key: route.FrontKey{Namespace: "edge", Service: "mc", ResolverPort: int32(number)},
		address: fmt.Sprintf("127.0.0.1:%d", number), routes: map[string]*route.Route{},
	}
	s.service("survival", v1alpha1.ProtocolMinecraft, "a.example.com")
	before := s.server.Usage().Files
	var answered []net.Conn
	for range maxFiles {
		c := dialTCP(t, s.address)
		write(t, c, status("nobody.example.com"))
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if n, _ := c.Read(make([]byte, 4096)); n > 0 {
			answered = append(answered, c)
		}
	}
	if files := s.server.Usage().Files - before; files != service.FilesOfTCP*len(answered) || len(answered) == 0 || files >= maxFiles {
		t.Errorf("%d strangers are answered and have %d files of %d, want 2 each", len(answered), files, maxFiles)
	}
	if got := s.refused("mc", proto.TooManyConnections); got != float64(maxFiles-len(answered)) {
		t.Errorf("%v were refused, want all but %d of %d", got, len(answered), maxFiles)
	}
	for _, c := range answered {
		_ = c.Close()
	}
	s.eventually("their files are given back", func() bool { return s.server.Usage().Files == before })
}
