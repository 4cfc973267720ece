package files

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/sftp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/ssh"
)

func TestThereIsNothingButSFTP(t *testing.T) {
	w := newWorld(t, nil)
	c := w.login()
	for _, kind := range []string{"direct-tcpip", "x11", "forwarded-tcpip", "auth-agent@openssh.com", "direct-streamlocal@openssh.com"} {
		_, _, err := c.OpenChannel(kind, ssh.Marshal(struct {
			Host string
			Port uint32
			From string
			At   uint32
		}{"127.0.0.1", 22, "127.0.0.1", 1}))
		var refused *ssh.OpenChannelError
		if !errors.As(err, &refused) || refused.Reason != ssh.Prohibited {
			t.Errorf("channel %s: %v", kind, err)
		}
	}
	for _, kind := range []string{"tcpip-forward", "streamlocal-forward@openssh.com"} {
		if ok, _, err := c.SendRequest(kind, true, nil); ok || err != nil {
			t.Errorf("request %s: %t, %v", kind, ok, err)
		}
	}
	for _, kind := range []string{"shell", "exec", "pty-req", "env", "auth-agent-req@openssh.com", "x11-req", "subsystem"} {
		channel, requests, err := c.OpenChannel("session", nil)
		check(t, err)
		go ssh.DiscardRequests(requests)
		payload := ssh.Marshal(struct{ A, B string }{"netconf", "id"})
		if kind == "subsystem" {
			payload = ssh.Marshal(struct{ A string }{"netconf"})
		}
		if ok, err := channel.SendRequest(kind, true, payload); ok || err != nil {
			t.Errorf("request %s: %t, %v", kind, ok, err)
		}
		_ = channel.Close()
		// It is closed by the server, too, and its place free.
		_, _ = io.Copy(io.Discard, channel)
	}
	if a, b := w.refused(refusedChannel), w.refused(refusedRequest); a < 5 || b < 9 {
		t.Errorf("%d channels and %d requests are counted", a, b)
	}
}

func TestChannelsAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	c := w.login()
	for range mostChannels {
		_, requests, err := c.OpenChannel("session", nil)
		check(t, err)
		go ssh.DiscardRequests(requests)
	}
	var refused *ssh.OpenChannelError
	if _, _, err := c.OpenChannel("session", nil); !errors.As(err, &refused) || refused.Reason != ssh.ResourceShortage {
		t.Errorf("one more: %v", err)
	}
}

func TestOpenFilesAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	c := w.sftp()
	check(t, put(c, "file", "x"))
	var open []*sftp.File
	for range mostOpen {
		f, err := c.Open("file")
		check(t, err)
		open = append(open, f)
	}
	_, err := c.Open("file")
	wantError(t, "one more", err, "too many files are open")
	_, err = c.ReadDir("/")
	wantError(t, "one more directory", err, "too many files are open")
	for _, f := range open {
		check(t, f.Close())
	}
	check(t, put(c, "file", "y"))
	if n := w.refused(refusedFiles); n != 2 {
		t.Errorf("%d are counted", n)
	}
}

// One keeps the connection alive without SFTP, and one asks for more than it reads.
func TestWhoStallsIsEnded(t *testing.T) {
	for name, stall := range map[string]func(w *world, c *ssh.Client){
		"keepalives": func(_ *world, c *ssh.Client) {
			for begun := time.Now(); time.Since(begun) < 20*time.Second; {
				if _, _, err := c.SendRequest("keepalive@openssh.com", true, nil); err != nil {
					return
				}
			}
			t.Error("keepalives keep it")
		},
		"unread": func(w *world, c *ssh.Client) {
			w.write(w.root+"/file", strings.Repeat("x", 8<<20))
			channel, requests, err := c.OpenChannel("session", nil)
			check(t, err)
			go ssh.DiscardRequests(requests)
			ok, err := channel.SendRequest("subsystem", true, ssh.Marshal(struct{ A string }{"sftp"}))
			if !ok || err != nil {
				t.Errorf("subsystem: %t, %v", ok, err)
			}
			packet := func(kind byte, body any) {
				payload := append([]byte{kind}, ssh.Marshal(body)...)
				// An error is the end that is waited for.
				_, _ = channel.Write(ssh.Marshal(struct{ Packet string }{string(payload)}))
			}
			packet(1, struct{ Version uint32 }{3})
			packet(3, struct {
				ID          uint32
				Name        string
				Flags, None uint32
			}{1, "file", 1, 0})
			for i := range uint64(256) {
				packet(5, struct {
					ID     uint32
					Handle string
					Offset uint64
					Length uint32
				}{2, "1", i << 15, 1 << 15})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(o *Options) { o.IdleTimeout = 3 * time.Second })
			c := w.login()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = c.Wait()
			}()
			stall(w, c)
			within(t, "end", ended)
			w.end()
			within(t, "end the server", w.ended)
			if !strings.Contains(w.logs(), `"idle"=true`) {
				t.Errorf("logged:\n%s", w.logs())
			}
			if name == "unread" && !strings.Contains(w.logs(), `"sent"=2`) {
				t.Errorf("it didn't read: the window should be full\n%s", w.logs())
			}
		})
	}
}

// Whoever moves bytes isn't idle, however long that takes.
func TestWhoWorksIsntIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{Server: &Server{opts: Options{IdleTimeout: time.Minute}, metrics: newMetrics(prometheus.NewRegistry())}}
		s.idle = time.AfterFunc(s.opts.IdleTimeout, func() { s.wasIdle.Store(true) })
		for i := range 10 {
			time.Sleep(time.Minute - 1) //nolint:forbidigo // no time passes
			s.moved(i%2, 1-i%2)
		}
		if s.wasIdle.Load() {
			t.Error("it is idle while bytes move")
		}
		s.moved(0, 0)
		time.Sleep(time.Minute + 1) //nolint:forbidigo // no time passes
		if !s.wasIdle.Load() {
			t.Error("it isn't idle while no byte moves")
		}
	})
}

// What is under way goes on when the server is told to end. Nobody new comes in.
func TestSessionsAreDrained(t *testing.T) {
	w := newWorld(t, nil)
	c := w.login()
	files, err := sftp.NewClient(c)
	check(t, err)
	f, err := files.Create("file")
	check(t, err)
	w.end()
	for {
		other, err := w.dial("127.0.0.1", "alice", ssh.Password(goodPassword))
		if err != nil {
			break
		}
		_ = other.Close()
	}
	_, err = io.WriteString(f, "whole")
	check(t, errors.Join(err, f.Close(), files.Close(), c.Close()))
	within(t, "end", w.ended)
	if got := w.read(w.root + "/file"); got != "whole" {
		t.Errorf("the file has %q", got)
	}
}

// An upload that takes longer than the drain is whole all the same, and no other one begins.
func TestAnUploadThatGoesOnIsFinished(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Drain = 20 * time.Millisecond }, func(s *Server) {
		s.drains = 10_000
	})
	c := w.login()
	files, err := sftp.NewClient(c)
	check(t, err)
	check(t, put(files, "good", "good"))
	f, err := files.Create("file.part")
	check(t, err)
	w.end()
	within(t, "be late", w.late)
	_, err = files.Create("good")
	wantError(t, "another upload", err, "connect again")
	if got := w.read(w.root + "/good"); got != "good" {
		t.Errorf("the file that it would have replaced has %q", got)
	}
	for range 20 {
		_, err = io.WriteString(f, "whole")
		check(t, err)
	}
	check(t, errors.Join(f.Close(), files.Rename("file.part", "file"), files.Close(), c.Close()))
	within(t, "end", w.ended)
	if got := w.read(w.root + "/file"); got != strings.Repeat("whole", 20) {
		t.Errorf("the file has %q", got)
	}
}

// Who uploads a byte now and then, or for ever, or has done so, doesn't keep the program.
func TestAnUploadHoldsNothingBackForLong(t *testing.T) {
	for name, c := range map[string]struct {
		drains int
		bounds uploadBounds
		writes bool
	}{
		"it is too slow":    {10_000, uploadBounds{look: time.Millisecond, pace: 20 * time.Millisecond, atLeast: 1 << 30}, true},
		"it takes too long": {uploadDrains, uploadBounds{look: time.Millisecond, pace: time.Hour}, true},
		"it is over":        {10_000, uploadBounds{look: time.Millisecond, pace: time.Hour}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(o *Options) { o.Drain = 20 * time.Millisecond }, func(s *Server) { s.drains, s.uploads = c.drains, c.bounds })
			f, err := w.sftp().Create("file")
			check(t, err)
			w.end()
			within(t, "be late", w.late)
			for c.writes && err == nil {
				_, err = io.WriteString(f, "x")
			}
			_ = f.Close()
			within(t, "end", w.ended)
		})
	}
}

func TestWhoStaysIsEndedAfterTheDrain(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Drain = 50 * time.Millisecond })
	c := w.login()
	w.end()
	_ = c.Wait()
	within(t, "end", w.ended)
}

func TestALoginAndItsEndAreLogged(t *testing.T) {
	w := newWorld(t, nil)
	c := w.login()
	files, err := sftp.NewClient(c)
	check(t, err)
	check(t, put(files, "file", strings.Repeat("x", 100_000)))
	check(t, errors.Join(files.Close(), c.Close()))
	w.end()
	within(t, "end", w.ended)
	for _, part := range []string{`"msg"="A user logged in"`, `"msg"="A user's session ended"`, `"user"="alice"`, `"address"="127.0.0.1:`, `"received"=100`} {
		if !strings.Contains(w.logs(), part) {
			t.Errorf("%s isn't in\n%s", part, w.logs())
		}
	}
}
