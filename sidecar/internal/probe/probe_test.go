package probe

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"dormouse.dev/dormouse/internal/gameproto/minecraft"
	"dormouse.dev/dormouse/internal/gameproto/quake3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// patience bounds what should happen at once.
	patience = 10 * time.Second
	// brief is a timeout that tests wait for.
	brief = 100 * time.Millisecond
)

// query asks a game at an address that should answer or fail at once.
func query(t *testing.T, kind Kind, address string) (Status, error) {
	t.Helper()
	p, err := New(kind, address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return p.Query(ctx)
}

// wantStatus asks and compares.
func wantStatus(t *testing.T, kind Kind, address string, want Status) {
	t.Helper()
	got, err := query(t, kind, address)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// wantError asks and wants an error at once with a text in it.
func wantError(t *testing.T, kind Kind, address, text string) {
	t.Helper()
	got, err := query(t, kind, address)
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Fatalf("got %+v and error %v, want %q in it", got, err, text)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("only the timeout ended the query: %v", err)
	}
	if !cmp.Equal(got, Status{}) {
		t.Errorf("got %+v beside an error", got)
	}
}

// A game that answers is there, whether or not it says how many play.
func TestWhetherAGameHasAnsweredIsKnown(t *testing.T) {
	always := func(answer []byte) func([]byte) [][]byte {
		return func([]byte) [][]byte { return [][]byte{answer} }
	}
	body := `{"version":{"name":"1.21","protocol":767},"description":"Warren"}`
	hiding := append(minecraft.AppendVarInt([]byte{0}, int32(len(body))), body...)
	hiding = append(minecraft.AppendVarInt(nil, int32(len(hiding))), hiding...)
	for name, c := range map[string]struct {
		kind    Kind
		address string
		want    bool
	}{
		"a Minecraft server that hides its players": {Minecraft, connections(t, func(conn net.Conn) {
			buffer := make([]byte, 1024)
			_, _ = conn.Read(buffer)
			_, _ = conn.Write(hiding)
		}), true},
		"a Minecraft server that hangs up":  {Minecraft, connections(t, func(net.Conn) {}), false},
		"a Bedrock pong without a count":    {Bedrock, datagrams(t, always([]byte("\x1cnoise"))), true},
		"an info that is cut off":           {Source, datagrams(t, always([]byte("\xff\xff\xff\xffI"))), true},
		"a status without a capacity":       {Quake3, datagrams(t, always(quake3.AppendStatus(nil, quake3.Status{}))), true},
		"a status, and no word of the bots": {Quake3, datagrams(t, unsaid), true},
		"answers to somebody else":          {Bedrock, datagrams(t, func([]byte) [][]byte { return slices.Repeat([][]byte{pongFor(t, 0, 1)}, 2*maxIgnored) }), false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := query(t, c.kind, c.address); err == nil || Answered(err) != c.want {
				t.Errorf("answered is %t after %v, want %t", Answered(err), err, c.want)
			}
		})
	}
	if Answered(nil) {
		t.Error("no error is one of an answer")
	}
}

// unsaid tells who plays, a bot among them perhaps, and answers an info with something else.
func unsaid(request []byte) [][]byte {
	if strings.Contains(string(request), "getinfo") {
		return [][]byte{[]byte("\xff\xff\xff\xffprint\nno")}
	}
	return [][]byte{quake3.AppendStatus(nil, quake3.Status{Info: quake3.Info{"sv_maxclients": "8"}, Players: []quake3.Player{{Name: "Hazel"}}})}
}

// datagrams is a game over UDP that answers each datagram with those that reply
// returns.
func datagrams(t *testing.T, reply func([]byte) [][]byte) string {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 64<<10)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			for _, answer := range reply(buffer[:n]) {
				_, _ = conn.WriteToUDPAddrPort(answer, from)
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return conn.LocalAddr().String()
}

// connections is a game over TCP that serves each connection and closes it.
func connections(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return listener.Addr().String()
}

// silent is a game that takes everything and says nothing.
func silent(t *testing.T, kind Kind) string {
	t.Helper()
	if kind != Minecraft {
		return datagrams(t, func([]byte) [][]byte { return nil })
	}
	return connections(t, func(conn net.Conn) {
		buffer := make([]byte, 1024)
		for {
			if _, err := conn.Read(buffer); err != nil {
				return
			}
		}
	})
}

var kinds = []Kind{Minecraft, Bedrock, Source, Quake3}

func TestASilentGameEndsWithTheTimeout(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			p, err := New(kind, silent(t, kind))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), brief)
			defer cancel()
			started := time.Now()
			_, err = p.Query(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got error %v, want the deadline's", err)
			}
			if took := time.Since(started); took < brief || took > patience {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestACancelledQueryEnds(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			asked := make(chan struct{}, 1)
			address := ""
			if kind == Minecraft {
				address = connections(t, func(conn net.Conn) {
					buffer := make([]byte, 1024)
					for {
						if _, err := conn.Read(buffer); err != nil {
							return
						}
						asked <- struct{}{}
					}
				})
			} else {
				address = datagrams(t, func([]byte) [][]byte {
					asked <- struct{}{}
					return nil
				})
			}
			p, err := New(kind, address)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := p.Query(ctx)
				ended <- err
			}()
			<-asked
			cancel()
			select {
			case err := <-ended:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got error %v, want the cancellation's", err)
				}
			case <-time.After(patience):
				t.Fatal("the query goes on")
			}
			if _, err := p.Query(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("asked in vain: got error %v, want the cancellation's", err)
			}
		})
	}
}

func TestAGameThatIsNotThereIsAnErrorAtOnce(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			var address string
			if kind == Minecraft {
				l, err := net.Listen("tcp4", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				address = l.Addr().String()
				l.Close()
			} else {
				c, err := net.ListenPacket("udp4", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				address = c.LocalAddr().String()
				c.Close()
			}
			_, err := query(t, kind, address)
			if !errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got error %v, want a refused connection", err)
			}
		})
	}
}

func TestNoSocketIsLeftBehind(t *testing.T) {
	for _, kind := range []Kind{Bedrock, Source, Quake3} {
		p, err := New(kind, silent(t, kind))
		if err != nil {
			t.Fatal(err)
		}
		before := sockets(t)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err := p.Query(ctx); err == nil {
				t.Error("a silent game was understood")
			}
			cancel()
		}
		if after := sockets(t); after > before {
			t.Errorf("%s: %d sockets are open, and were %d", kind, after, before)
		}
	}
	// A game over TCP sees its client hang up.
	ended := make(chan struct{}, 1)
	p, err := New(Minecraft, connections(t, func(conn net.Conn) {
		for buffer := make([]byte, 1024); ; {
			if _, err := conn.Read(buffer); err != nil {
				ended <- struct{}{}
				return
			}
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), brief)
	defer cancel()
	if _, err := p.Query(ctx); err == nil {
		t.Error("a silent game was understood")
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the connection is still open")
	}
}

// sockets counts this process' open sockets.
func sockets(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("there is no /proc here")
	}
	count := 0
	for _, f := range files {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			count++
		}
	}
	return count
}

func TestABadAddressOrKindIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		kind    Kind
		address string
	}{
		"no kind":        {"", "127.0.0.1:1"},
		"another kind":   {"teamspeak", "127.0.0.1:1"},
		"no address":     {Minecraft, ""},
		"no port":        {Minecraft, "127.0.0.1"},
		"no host":        {Minecraft, ":25565"},
		"port 0":         {Minecraft, "127.0.0.1:0"},
		"port 65536":     {Minecraft, "127.0.0.1:65536"},
		"a port by name": {Minecraft, "127.0.0.1:http"},
	} {
		if _, err := New(c.kind, c.address); err == nil {
			t.Errorf("%s: %q at %q was taken", name, c.kind, c.address)
		}
	}
}

func TestAGamesWordsAreMadeFitForOthers(t *testing.T) {
	for in, want := range map[string]string{
		"A dormouse":                   "A dormouse",
		"":                             "",
		"two\nlines\x00\x1b[31m":       "twolines[31m",
		"H\xe4sel":                     "Hsel",
		"Häsel":                        "Häsel",
		strings.Repeat("a", 1000):      strings.Repeat("a", 256),
		strings.Repeat("a", 255) + "ä": strings.Repeat("a", 255),
		"\u009bcontrol" + strings.Repeat("\xff", 10): "control",
	} {
		if got := clean(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
