package dataplane

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/test/env"
)

// web serves HTTP on an address.
func web(t *testing.T, address string, overTLS bool, handle http.HandlerFunc) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handle)
	_ = s.Listener.Close()
	s.Listener = ln
	t.Cleanup(s.Close)
	if overTLS {
		s.EnableHTTP2 = true
		s.StartTLS()
		return
	}
	s.Start()
}

// curl begins a curl, and gives what waits for its end and for what it wrote.
func curl(t *testing.T, args ...string) func() string {
	t.Helper()
	mayInstall(t, env.InstallDebian(t.Context(), "curl", "curl", os.Stderr))
	cmd := exec.CommandContext(t.Context(), "curl", append([]string{"-sS", "--max-time", "30"}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() string {
		t.Helper()
		if err := cmd.Wait(); err != nil {
			t.Fatalf("curl %q: %v: %s", args, err, out.String())
		}
		return out.String()
	}
}

func TestCurlProbesASleepingHTTPServiceAndWakesIt(t *testing.T) {
	r := newRig(t)
	address := r.serve("web", route.TCP, speaksHTTP)
	url := "http://" + address
	// The second probe goes over the first one's connection.
	if got, want := curl(t, "-w", "%{http_code} %{num_connects}\n", url+"/healthz", url+"/healthz")(), "asleep\n200 1\nasleep\n200 0\n"; got != want {
		t.Errorf("probes got %q, want %q", got, want)
	}
	if got := curl(t, "-I", "-o", os.DevNull, "-w", "%{http_code}", url+"/healthz")(); got != "200" {
		t.Errorf("a probe by HEAD got %q", got)
	}
	r.undisturbed()

	upload := filepath.Join(t.TempDir(), "upload")
	sent := make([]byte, 8<<20)
	_, _ = rand.Read(sent)
	if err := os.WriteFile(upload, sent, 0o600); err != nil {
		t.Fatal(err)
	}
	page, put := curl(t, url+"/page"), curl(t, "-T", upload, url+"/upload")
	r.queued(2)
	server := freeAddress(t, route.TCP)
	web(t, server, false, func(w http.ResponseWriter, got *http.Request) {
		h := sha256.New()
		n, _ := io.Copy(h, got.Body)
		_, _ = fmt.Fprintf(w, "%s %s %d %x", got.Method, got.URL.Path, n, h.Sum(nil))
	})
	r.backend(server, true)
	if got, want := page(), fmt.Sprintf("GET /page 0 %x", sha256.Sum256(nil)); got != want {
		t.Errorf("a held request got %q, want %q", got, want)
	}
	if got, want := put(), fmt.Sprintf("PUT /upload %d %x", len(sent), sha256.Sum256(sent)); got != want {
		t.Errorf("an upload got %q, want %q", got, want)
	}
}

func TestAnHTTPClientIsToldToComeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.route.Hold.Timeout = 200 * time.Millisecond
	url := "http://" + r.serve("web", route.TCP, speaksHTTP)
	upload := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(upload, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	const write = "%{http_code} %header{retry-after}"
	for name, args := range map[string][]string{
		"a request": {url}, "an upload": {"-H", "Expect:", "-T", upload, url}, "an upload that asks first": {"-T", upload, url},
	} {
		if got := curl(t, append([]string{"-o", os.DevNull, "-w", write}, args...)...)(); got != "503 5" {
			t.Errorf("%s got %q", name, got)
		}
	}
	// curl shows a page to nobody, so that it has to ask for it.
	if got := curl(t, "-H", "Accept: text/html", url)(); !strings.Contains(got, "<h1>lobby is waking up</h1>") {
		t.Errorf("for a browser there is %q", got)
	}
}

func TestWhatIsNoPlainHTTPPassesThrough(t *testing.T) {
	for name, c := range map[string]struct {
		tls  bool
		args []string
		want string
	}{
		"TLS":            {true, []string{"-k", "--http1.1", "https://ADDRESS/a"}, "HTTP/1.1 /a"},
		"HTTP/2 in TLS":  {true, []string{"-k", "--http2", "https://ADDRESS/a"}, "HTTP/2.0 /a"},
		"a chunked body": {false, []string{"-H", "Transfer-Encoding: chunked", "-d", "1", "http://ADDRESS/a"}, "HTTP/1.1 /a"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			address := r.serve("web", route.TCP, speaksHTTP)
			var args []string
			for _, arg := range c.args {
				args = append(args, strings.ReplaceAll(arg, "ADDRESS", address))
			}
			held := curl(t, args...)
			r.queued(1)
			server := freeAddress(t, route.TCP)
			web(t, server, c.tls, func(w http.ResponseWriter, got *http.Request) { _, _ = fmt.Fprint(w, got.Proto, " ", got.URL.Path) })
			r.backend(server, true)
			if got := held(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestServerSentEventsOverHTTPComeAsTheyAreSent(t *testing.T) {
	mayInstall(t, env.InstallDebian(t.Context(), "curl", "curl", os.Stderr))
	r := newRig(t)
	address := r.serve("web", route.TCP, speaksHTTP)
	cmd := exec.CommandContext(t.Context(), "curl", "-sSN", "--max-time", "30", "http://"+address+"/events")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.queued(1)
	next := make(chan string)
	server := freeAddress(t, route.TCP)
	web(t, server, false, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for event := range next {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", event)
			_ = http.NewResponseController(w).Flush()
		}
	})
	r.backend(server, true)
	for _, event := range []string{"a", "b", "c"} {
		next <- event
		got := make([]byte, len("data: a\n\n"))
		if _, err := io.ReadFull(out, got); err != nil || string(got) != "data: "+event+"\n\n" {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	close(next)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestOtherPeoplesWebSocketsWakeAnHTTPServerAndTalk(t *testing.T) {
	t.Parallel()
	run := scripts(t, "websocket.js")
	r := newRig(t)
	r.route.Hold.Timeout = 200 * time.Millisecond
	address := r.serve("web", route.TCP, speaksHTTP)
	var late struct {
		Status int
		Retry  string
	}
	if run("talk", portOf(t, address)).next(&late); late.Status != 503 || late.Retry != "5" {
		t.Errorf("who waited in vain saw %+v", late)
	}
	r.change(func(rt *route.Route) { rt.Hold.Timeout = time.Minute })
	client := run("talk", portOf(t, address))
	r.clientHeld()
	server := freeAddress(t, route.TCP)
	var serving struct{ Serving bool }
	run("serve", portOf(t, server)).next(&serving)
	r.backend(server, true)
	var heard struct {
		Text, Error string
		Same        bool
	}
	if client.next(&heard); heard.Text != "hello" || !heard.Same {
		t.Errorf("the client heard %+v", heard)
	}
	// It says nothing more, and is let alone when others go straight to the server.
	r.change(func(rt *route.Route) { rt.Phase, rt.Direct = v1alpha1.PhaseAwake, true })
	r.never("the WebSocket ends", 3500*time.Millisecond, func() bool { return r.sessions().Sessions != 1 })
}

func TestAStreamOfGRPCWakesAnHTTPServerAndTalks(t *testing.T) {
	r := newRig(t)
	address := r.serve("web", route.TCP, speaksHTTP)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	begun := make(chan struct{})
	var stream grpc.ClientStream
	go func() {
		defer close(begun)
		stream, err = conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/lobby.Chat/Talk", grpc.WaitForReady(true))
	}()
	r.queued(1)
	address = freeAddress(t, route.TCP)
	ln, failed := net.Listen("tcp", address)
	if failed != nil {
		t.Fatal(failed)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		for {
			var said wrapperspb.StringValue
			if err := stream.RecvMsg(&said); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := stream.SendMsg(wrapperspb.String("you said " + said.GetValue())); err != nil {
				return err
			}
		}
	}))
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(server.Stop)
	r.backend(address, true)
	if <-begun; err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"hello", "and", "more"} {
		var heard wrapperspb.StringValue
		if err := errors.Join(stream.SendMsg(wrapperspb.String(word)), stream.RecvMsg(&heard)); err != nil || heard.GetValue() != "you said "+word {
			t.Fatalf("heard %q, %v", heard.GetValue(), err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(&wrapperspb.StringValue{}); !errors.Is(err, io.EOF) {
		t.Errorf("at the end there was %v", err)
	}
}

// Chromium is too much to download for a test, so this one is for machines that
// have it.
func TestABrowserWaitsOnAnHTTPPageThatReloadsItself(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("there is no chromium")
	}
	r := newRig(t)
	r.route.Hold.Timeout = 200 * time.Millisecond
	address := r.serve("web", route.TCP, speaksHTTP)
	browser := exec.CommandContext(t.Context(), "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-port=0", "http://"+address+"/play")
	if err := browser.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = browser.Process.Kill(); _ = browser.Wait() })
	if !within(clientPatience, func() bool { return r.refused("timeout") > 0 }) {
		t.Fatal("the browser never came")
	}
	asked := make(chan string, 8)
	server := freeAddress(t, route.TCP)
	web(t, server, false, func(_ http.ResponseWriter, got *http.Request) {
		select {
		case asked <- got.URL.Path:
		default:
		}
	})
	r.backend(server, true)
	for {
		select {
		case path := <-asked:
			if path == "/play" {
				return
			}
		case <-time.After(clientPatience):
			t.Fatal("the page was not loaded again")
		}
	}
}
