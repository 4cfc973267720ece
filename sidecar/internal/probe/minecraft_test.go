package probe

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/internal/gameproto/minecraft"
)

// javaAnswer is a status answer with three of twenty.
func javaAnswer(t *testing.T) []byte {
	t.Helper()
	b, err := minecraft.AppendStatus(nil, minecraft.Status{Version: "1.21", Protocol: 767, Players: 3, Capacity: 20, Description: "Warren\n§aDown"})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var javaStatus = Status{Players: 3, Capacity: 20, Version: "1.21", Name: "Warren§aDown"}

func TestMinecraftIsAskedOnceAndAnswers(t *testing.T) {
	asked := make(chan []byte, 1)
	answer := javaAnswer(t)
	address := connections(t, func(conn net.Conn) {
		buffer := make([]byte, 1024)
		n, _ := conn.Read(buffer)
		asked <- buffer[:n]
		_, _ = conn.Write(answer)
		// The prober hangs up first.
		_, _ = conn.Read(buffer)
	})
	wantStatus(t, Minecraft, address, javaStatus)
	_, port, _ := net.SplitHostPort(address)
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	if want := minecraft.AppendStatusRequest(nil, "localhost", uint16(number)); !bytes.Equal(<-asked, want) {
		t.Errorf("asked something else than %x", want)
	}
}

func TestMinecraftMayAnswerByteByByte(t *testing.T) {
	// Unlike a socket, a pipe never joins what was written apart.
	game, prober := net.Pipe()
	defer prober.Close()
	done := make(chan struct{})
	answer := javaAnswer(t)
	go func() {
		defer close(done)
		defer game.Close()
		buffer := make([]byte, 1024)
		_, _ = game.Read(buffer)
		for i := range answer {
			if _, err := game.Write(answer[i : i+1]); err != nil {
				t.Errorf("byte %d of %d was not read: %v", i, len(answer), err)
				return
			}
		}
	}()
	got, err := askMinecraft(25565)(prober)
	<-done
	got.Name = clean(got.Name)
	if err != nil || got != javaStatus {
		t.Errorf("got %+v (error %v), want %+v", got, err, javaStatus)
	}
}

func TestMinecraftThatDribblesEndsWithTheTimeout(t *testing.T) {
	address := connections(t, func(conn net.Conn) {
		// A long answer is promised, and each byte comes well in time.
		_, _ = conn.Write(minecraft.AppendVarInt(nil, minecraft.MaxFrame))
		ticker := time.NewTicker(brief / 20)
		defer ticker.Stop()
		for range ticker.C {
			if _, err := conn.Write([]byte{' '}); err != nil {
				return
			}
		}
	})
	p, err := New(Minecraft, address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), brief)
	defer cancel()
	started := time.Now()
	if _, err := p.Query(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want the deadline's", err)
	}
	if took := time.Since(started); took > patience {
		t.Errorf("it took %v", took)
	}
}

func TestHostileMinecraftAnswersAreErrorsAtOnce(t *testing.T) {
	long := minecraft.AppendVarInt(nil, minecraft.MaxFrame)
	for name, c := range map[string]struct {
		answer  []byte
		wantErr string
	}{
		"it hangs up":                   {nil, "unexpected EOF"},
		"half an answer":                {javaAnswer(t)[:40], "unexpected EOF"},
		"a huge length":                 {minecraft.AppendVarInt(nil, 1<<31-1), "length 2147483647"},
		"a negative length":             {minecraft.AppendVarInt(nil, -1), "length -1"},
		"an empty frame":                {[]byte{0}, "length 0"},
		"a length without an end":       {bytes.Repeat([]byte{0xff}, 100), "no end"},
		"HTTP":                          {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat(" ", 100)), "no status"},
		"as much as may be, of nothing": {append(long, make([]byte, minecraft.MaxFrame)...), "bytes in a packet"},
	} {
		t.Run(name, func(t *testing.T) {
			address := connections(t, func(conn net.Conn) {
				buffer := make([]byte, 1024)
				_, _ = conn.Read(buffer)
				_, _ = conn.Write(c.answer)
			})
			wantError(t, Minecraft, address, c.wantErr)
		})
	}
}

func TestMinecraftThatFloodsIsReadNoFurtherThanItsAnswer(t *testing.T) {
	written := make(chan int, 1)
	answer := append(minecraft.AppendVarInt(nil, minecraft.MaxFrame), make([]byte, 64<<20)...)
	address := connections(t, func(conn net.Conn) {
		n, _ := conn.Write(answer)
		written <- n
	})
	wantError(t, Minecraft, address, "bytes in a packet")
	// The rest is what sockets hold.
	if n := <-written; n > len(answer)/2 {
		t.Errorf("%d bytes of the flood were taken", n)
	}
}
