package relay

import (
	"bytes"
	"io"
	"net"
	"testing"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

func TestAMarkedResponseArrivesWholeWhoeverHasNoRoomForIt(t *testing.T) {
	const line, mark, rest = "HTTP/1.1 200 OK\r\n", "Cold-Start: true\r\n", "Connection: close\r\n\r\n"
	body := bytes.Repeat([]byte("burrow.."), 1<<17)
	for name, c := range map[string]struct {
		followed bool
		kept     *conn.Budget
	}{
		"with memory": {}, "without memory": {kept: conn.NewBudget(0)},
		"followed": {followed: true}, "followed, without memory": {true, conn.NewBudget(0)},
	} {
		t.Run(name, func(t *testing.T) {
			client, inside := connected(t)
			outside, server := connected(t)
			_ = inside.SetWriteBuffer(8 << 10)
			_ = server.SetWriteBuffer(1 << 20)
			_ = outside.SetReadBuffer(1 << 20)
			o := Options{Mark: &http1.Mark{}, Kept: c.kept}
			if c.followed {
				o.Exchange = http1.NewExchange()
				o.Exchange.Read(http1.Client, []byte("GET / HTTP/1.1\r\n\r\n"))
				o.Exchange.Passed(http1.Client)
			}
			// There is more than a buffer's worth before the relay begins.
			first := line + rest + string(body[:256<<10])
			if _, err := io.WriteString(server, first); err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _ = server.Write(body[256<<10:])
				_ = server.CloseWrite()
			}()
			waitReadable(t, outside)
			done := make(chan Ended, 1)
			go func() { done <- Run(t.Context(), inside, outside, o, nil) }()
			got, err := io.ReadAll(client)
			if want := line + mark + rest + string(body); err != nil || string(got) != want {
				t.Errorf("got %d bytes that begin with %.100q, %v; want %d", len(got), got, err, len(want))
			}
			_ = client.Close()
			if e := <-done; e.Err != nil || e.ToClient != int64(len(got)) {
				t.Errorf("it ended with %+v", e)
			}
		})
	}
}

// waitReadable waits until a whole buffer can be read from a connection.
func waitReadable(t *testing.T, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, conn.BufferBytes)
	if err := raw.Read(func(fd uintptr) bool {
		n, _ := conn.PeekNow(int(fd), chunk)
		return n == len(chunk)
	}); err != nil {
		t.Fatal(err)
	}
}
