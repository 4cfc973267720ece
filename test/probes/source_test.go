package probes

import (
	"bytes"
	"net"
	"path/filepath"
	"testing"

	"dormouse.dev/dormouse/internal/gameproto/source"
	"dormouse.dev/dormouse/test/hexfile"
)

// No package that a machine can install has a server that speaks Valve's
// protocol. What stands in for it is a server of the test's own that says what
// real servers said, or what this project writes; other people's clients judge
// both, and its way with challenges.
func TestSourceIsUnderstoodAsByOtherClients(t *testing.T) {
	t.Parallel()
	needNode(t)
	needDebian(t, "qstat", "quakestat")
	written := source.AppendAnswer(nil, source.Answer{Info: &source.Info{
		Protocol: 17, Name: "A dormouse", Map: "burrow", Folder: "warren", Game: "Warren", AppID: 10,
		Players: 9, Capacity: 32, Bots: 2, Type: 'd', OS: 'l', Password: true, Secure: true,
		Version: "1.2.3", Port: 27015, Keywords: "dig,eat,sleep", GameID: 108600,
	}})
	for name, c := range map[string]struct {
		info []byte
		want opinion
	}{
		"Counter-Strike's":  {recordedInfo(t, "counter_strike"), opinion{Name: "game2xs.com Counter-Strike Source #1", Players: 5, Bots: 4, Capacity: 16}},
		"The Ship's":        {recordedInfo(t, "the_ship"), opinion{Name: "Ship Server", Players: 1, Capacity: 5}},
		"Project Zomboid's": {recordedInfo(t, "project_zomboid"), opinion{Name: "play.thegamecracks.xyz", Capacity: 8}},
		"our own":           {written, opinion{Name: "A dormouse", Players: 9, Bots: 2, Capacity: 32}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port := serveInfo(t, c.info)
			got, err := ask(t, "source", port)
			if err != nil {
				t.Fatal(err)
			}
			want := status{Players: c.want.Players - c.want.Bots, Capacity: c.want.Capacity, Name: c.want.Name, Version: got.Version}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			// Neither tells bots from this answer alone.
			others := c.want
			others.Bots = 0
			if got := gamedig(t, "valve", port); got != others {
				t.Errorf("gamedig says %+v, want %+v", got, others)
			}
			if got, err := quakestat(t, "-a2s", port); err != nil || got != others {
				t.Errorf("qstat says %+v (error %v), want %+v", got, err, others)
			}
		})
	}
}

// recordedInfo is what a real server said.
func recordedInfo(t *testing.T, game string) []byte {
	t.Helper()
	b, err := hexfile.Read(filepath.Join("..", "..", "internal", "gameproto", "source", "testdata", "info_"+game+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// serveInfo answers requests that have the right challenge with an info, and
// with a list of no players, which other clients ask for as well.
func serveInfo(t *testing.T, info []byte) (port int) {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	challenge := source.Challenge{0x4b, 0xa1, 0xd5, 0x22}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buffer := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			answer := source.AppendAnswer(nil, source.Answer{Challenge: &challenge})
			switch request := buffer[:n]; {
			case bytes.Equal(request, source.AppendInfoRequest(nil, &challenge)):
				answer = info
			case bytes.Equal(request, append([]byte("\xff\xff\xff\xffU"), challenge[:]...)):
				answer = []byte("\xff\xff\xff\xffD\x00")
			}
			_, _ = conn.WriteToUDPAddrPort(answer, from)
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return conn.LocalAddr().(*net.UDPAddr).Port
}
