package files

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"golang.org/x/crypto/ssh"
)

// stream is a channel with requests that came already. Its answers fail once it is broken.
type stream struct {
	ssh.Channel
	requests *bytes.Reader
	broken   bool
}

func (s *stream) Read(p []byte) (int, error) { return s.requests.Read(p) }

func (s *stream) Write(p []byte) (int, error) {
	if s.broken {
		return 0, errors.New("broken")
	}
	return len(p), nil
}

// readPacket reads as the library does, and sends what it read.
func readPacket(l *lockstep, n int, to chan<- string) {
	packet := make([]byte, n)
	if _, err := io.ReadFull(l, packet[:4]); err != nil {
		to <- err.Error()
		return
	}
	_, err := io.ReadFull(l, packet[4:])
	if err != nil {
		to <- err.Error()
		return
	}
	to <- string(packet)
}

func TestARequestWaitsForTheAnswerBefore(t *testing.T) {
	const one, two = "\x00\x00\x00\x03abc", "\x00\x00\x00\x02de"
	for name, broken := range map[string]bool{"answered": false, "broken": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var received, sent int
				s := &stream{requests: bytes.NewReader([]byte(one + two))}
				l := newLockstep(s, func(in, out int) { received, sent = received+in, sent+out })
				packets := make(chan string, 1)
				readPacket(l, len(one), packets)
				if got := <-packets; got != one {
					t.Fatalf("read %q", got)
				}
				go readPacket(l, len(two), packets)
				// The library writes a packet's head and the rest apart.
				for _, part := range []string{"\x00\x00", "\x00\x04an", "s"} {
					_, err := l.Write([]byte(part))
					check(t, err)
					synctest.Wait()
					if len(packets) > 0 {
						t.Fatalf("read %q before the answer", <-packets)
					}
				}
				s.broken = broken
				_, err := l.Write([]byte("r"))
				got, want := <-packets, two
				if broken {
					want = io.EOF.Error()
				}
				if got != want || (err != nil) != broken {
					t.Errorf("read %q after the answer, which had the error %v", got, err)
				}
				if !broken && (received != len(one)+len(two) || sent != 8) {
					t.Errorf("counted %d and %d bytes", received, sent)
				}
			})
		})
	}
}
