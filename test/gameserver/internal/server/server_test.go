package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"dormouse.dev/dormouse/test/player"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const loopback = "127.0.0.1:0"

// start runs a server for the test; it is told to end when the test does.
func start(t *testing.T, o Options) *Server {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if o.ID == "" {
		o.ID = "game-0"
	}
	s, err := Start(ctx, o)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := s.Wait(); err != nil && !errors.Is(err, ErrCrash) {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

func TestPlayersGetEveryReplyOnceAndInOrder(t *testing.T) {
	s := start(t, Options{TCP: []string{loopback, loopback}, UDP: []string{loopback}})
	for name, dial := range map[string]func(context.Context) (*player.Player, error){
		"first TCP port": func(ctx context.Context) (*player.Player, error) {
			return player.DialTCP(ctx, s.Addresses().TCP[0], player.Options{})
		},
		"second TCP port": func(ctx context.Context) (*player.Player, error) {
			return player.DialTCP(ctx, s.Addresses().TCP[1], player.Options{PayloadSize: 4000})
		},
		"UDP port": func(ctx context.Context) (*player.Player, error) {
			return player.DialUDP(ctx, s.Addresses().UDP[0], player.Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			for range 100 {
				if _, err := p.Send(); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := p.Drain(ctx); err != nil {
				t.Fatal(err)
			}
			stats := p.Stats()
			if err := stats.Intact(); err != nil {
				t.Errorf("session is not intact: %v", err)
			}
			if stats.First.Server != "game-0" || stats.First.Peer != p.LocalAddr().String() {
				t.Errorf("server %q, peer %q; want game-0, %v", stats.First.Server, stats.First.Peer, p.LocalAddr())
			}
			if stats.ListeningToFirstByte() <= 0 || stats.First.Started > stats.First.Listening {
				t.Errorf("times are out of order: %+v", stats.First)
			}
		})
	}
}

func TestRawBytesComeBackAfterTheClientClosedItsHalf(t *testing.T) {
	s := start(t, Options{EchoTCP: []string{loopback}, HTTPAddress: loopback})
	var group errgroup.Group
	for range 8 {
		group.Go(func() error { return player.Echo(t.Context(), nil, s.Addresses().EchoTCP[0], 1<<20) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, "/stats"); !strings.Contains(got, `"tcpBytesIn":8388608,"tcpBytesOut":8388608`) {
		t.Errorf("stats = %s, want 8 MiB in and out", got)
	}
}

func TestNothingListensBeforeTheBootDelay(t *testing.T) {
	before := time.Now()
	s := start(t, Options{TCP: []string{loopback}, BootDelay: 50 * time.Millisecond})
	if booted := time.Since(before); booted < 50*time.Millisecond {
		t.Errorf("listened after %v, want 50ms at least", booted)
	}
	if delay := s.listening.Load() - s.started.UnixNano(); delay < int64(50*time.Millisecond) {
		t.Errorf("tells of a boot of %v, want 50ms at least", time.Duration(delay))
	}
}

func TestTheFirstStartsCrashAndALaterOneServes(t *testing.T) {
	o := Options{TCP: []string{loopback}, CrashFirst: 2, CrashFile: filepath.Join(t.TempDir(), "crashes")}
	for range 2 {
		if err := Run(t.Context(), o); !errors.Is(err, ErrCrash) {
			t.Fatalf("error = %v, want ErrCrash", err)
		}
	}
	start(t, o)
}

func TestACrashCutsItsPlayersOff(t *testing.T) {
	s := start(t, Options{TCP: []string{loopback}, CrashAfter: 20 * time.Millisecond})
	p, err := player.DialTCP(t.Context(), s.Addresses().TCP[0], player.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	<-p.Done()
	if err := s.Wait(); !errors.Is(err, ErrCrash) {
		t.Errorf("error = %v, want ErrCrash", err)
	}
	if p.Stats().Intact() == nil {
		t.Error("the player didn't notice")
	}
}

// crashWatcher is an answer that notes whether it had left when the crash came.
type crashWatcher struct {
	*httptest.ResponseRecorder
	server     *Server
	leftInTime bool
}

func (w *crashWatcher) Flush() {
	select {
	case <-w.server.crashed:
	default:
		w.leftInTime = true
	}
}

func TestACrashIsAnsweredBeforeItHappens(t *testing.T) {
	s := start(t, Options{TCP: []string{loopback}})
	answer := &crashWatcher{ResponseRecorder: httptest.NewRecorder(), server: s}
	s.handler("").ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/crash", http.NoBody))
	if answer.Code != http.StatusNoContent || !answer.leftInTime {
		t.Errorf("answered %d, left before the crash: %v; want 204 and true", answer.Code, answer.leftInTime)
	}
	if err := s.Wait(); !errors.Is(err, ErrCrash) {
		t.Errorf("error = %v, want ErrCrash", err)
	}
}

func TestSessionsLingerAfterTheEndWasAskedFor(t *testing.T) {
	for network, dial := range map[string]func(context.Context, string, player.Options) (*player.Player, error){
		"tcp": player.DialTCP, "udp": player.DialUDP,
	} {
		t.Run(network, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s, err := Start(ctx, Options{ID: "game-0", TCP: []string{loopback}, UDP: []string{loopback}, Linger: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			address := map[string]string{"tcp": s.Addresses().TCP[0], "udp": s.Addresses().UDP[0]}[network]
			p, err := dial(t.Context(), address, player.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Exchange(t.Context()); err != nil {
				t.Fatal(err)
			}
			cancel()
			playing, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			for range 20 {
				if _, err := p.Exchange(playing); err != nil {
					t.Fatalf("session ended too early: %v", err)
				}
				<-time.After(10 * time.Millisecond)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPlayersAreCountedUntilANumberIsSet(t *testing.T) {
	s := start(t, Options{TCP: []string{loopback}, UDP: []string{loopback}, HTTPAddress: loopback})
	tcp, err := player.DialTCP(t.Context(), s.Addresses().TCP[0], player.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := player.DialUDP(t.Context(), s.Addresses().UDP[0], player.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for _, p := range []*player.Player{tcp, udp} {
		if _, err := p.Exchange(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		if got := get(t, s, "/players"); got != want {
			t.Errorf("players = %s, want %s", got, want)
		}
	}
	expect(`{"players":{"online":2}}`)
	do(t, http.MethodPut, s, "/players", `{"players":{"online":40}}`)
	expect(`{"players":{"online":40}}`)
	do(t, http.MethodDelete, s, "/players", "")
	expect(`{"players":{"online":2}}`)
	if got := get(t, s, "/healthz"); got != "ok" {
		t.Errorf("health = %q, want ok", got)
	}
}

func get(t *testing.T, s *Server, path string) string {
	t.Helper()
	return do(t, http.MethodGet, s, path, "")
}

func do(t *testing.T, method string, s *Server, path, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addresses().HTTP+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(answer))
}
