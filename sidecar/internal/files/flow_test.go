package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/crypto/ssh"
)

// pipes is a listener whose connections buffer nothing.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// ahead writes some packets ahead of who reads: both sides of SSH begin with writing.
type ahead struct {
	net.Conn
	packets chan []byte
	closed  chan struct{}
	once    sync.Once
}

func newAhead(c net.Conn) *ahead {
	a := &ahead{Conn: c, packets: make(chan []byte, 16), closed: make(chan struct{})}
	go func() {
		for {
			select {
			case p := <-a.packets:
				if _, err := c.Write(p); err != nil {
					return
				}
			case <-a.closed:
				return
			}
		}
	}()
	return a
}

func (a *ahead) Write(p []byte) (int, error) {
	select {
	case a.packets <- bytes.Clone(p):
		return len(p), nil
	case <-a.closed:
		return 0, net.ErrClosed
	}
}

func (a *ahead) Close() error {
	a.once.Do(func() { close(a.closed) })
	return a.Conn.Close()
}

// inPipes has a user who is logged in, and what it does, where nothing is buffered but by SSH.
func inPipes(t *testing.T, w *world, does func(*ssh.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ln := &pipes{make(chan net.Conn), make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Serve(ctx, ln)
		}()
		ours, theirs := net.Pipe()
		ln.accept <- theirs
		conn, channels, requests, err := ssh.NewClientConn(newAhead(ours), "pipe", &ssh.ClientConfig{
			User: "bob", Auth: []ssh.AuthMethod{ssh.PublicKeys(w.bob)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		})
		check(t, err)
		client := ssh.NewClient(conn, channels, requests)
		does(client)
		_ = client.Close()
		cancel()
		<-ended
	})
}

// bytesSent are how many packets of one byte can be sent until nothing more is taken.
func bytesSent(c io.Writer) (sent int) {
	go func() {
		for range 1 << 20 {
			if _, err := c.Write([]byte{0}); err != nil {
				return
			}
			sent++
		}
	}()
	synctest.Wait()
	return sent
}

func TestPacketsOfAByteAreBounded(t *testing.T) {
	for name, open := range map[string]func(*ssh.Client) (io.Writer, error){
		"that nobody reads": func(c *ssh.Client) (io.Writer, error) {
			channel, _, err := c.OpenChannel("session", nil)
			return channel, err
		},
		"beside SFTP that is read": func(c *ssh.Client) (io.Writer, error) {
			other, _, err := c.OpenChannel("session", nil)
			if err != nil {
				return nil, err
			}
			_, err = other.SendRequest("subsystem", true, ssh.Marshal(struct{ Name string }{"sftp"}))
			// The first bytes of a long request.
			_, err2 := other.Write([]byte{0, 3, 0, 0})
			channel, _, err3 := c.OpenChannel("session", nil)
			return both{channel, other}, errors.Join(err, err2, err3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			inPipes(t, w, func(client *ssh.Client) {
				to, err := open(client)
				check(t, err)
				if sent := bytesSent(to); sent < 40_000 || sent > 100_000 {
					t.Errorf("%d packets are in memory", sent)
				}
			})
		})
	}
}

// both writes to two channels.
type both struct{ first, second io.Writer }

func (b both) Write(p []byte) (int, error) {
	if _, err := b.second.Write(p); err != nil {
		return 0, err
	}
	return b.first.Write(p)
}

// What is read makes room, and what takes part of the way beside it.
func TestAFlowGoesOnOnceAllIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		f := newFlow(theirs)
		f.limit()
		taken := 0
		took := make(chan struct{})
		go func() {
			defer close(took)
			for buffer := make([]byte, 64<<10); ; {
				n, err := f.Read(buffer)
				if taken += n; err != nil {
					return
				}
			}
		}()
		go func() {
			for packet := make([]byte, 64<<10); ; {
				if _, err := ours.Write(packet); err != nil {
					return
				}
			}
		}()
		var first, second answers
		a, b := f.part(&first), f.part(&second)
		wantTaken := func(want int) {
			t.Helper()
			if synctest.Wait(); taken != want {
				t.Fatalf("it took %d bytes, want %d", taken, want)
			}
		}
		read := func(p *part, from *answers, asked, got int) {
			from.n = got
			_, _ = p.Read(make([]byte, asked))
		}
		wantTaken(mostUnread)
		read(a, &first, 64<<10, 64<<10)
		wantTaken(mostUnread + 64<<10)
		read(a, &first, 100, 50)
		wantTaken(mostUnread + 2*64<<10) // of the second channel nobody knows
		first.blocks = make(chan struct{})
		go func() { _, _ = a.Read(make([]byte, 100)) }()
		synctest.Wait()
		read(b, &second, 100, 50)
		wantTaken(2*mostUnread + 2*64<<10)
		b.end()
		wantTaken(3*mostUnread + 2*64<<10)
		close(first.blocks)
		synctest.Wait()
		_, _ = ours.Close(), f.Close()
		<-took
	})
}

// answers reads n bytes, once it isn't blocked.
type answers struct {
	n      int
	blocks chan struct{}
}

func (a *answers) Read([]byte) (int, error) {
	if a.blocks != nil {
		<-a.blocks
	}
	return a.n, nil
}
