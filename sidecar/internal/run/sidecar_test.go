package run

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/sidecar/internal/options"
	"dormouse.dev/dormouse/test/reexec"
	"dormouse.dev/dormouse/test/reports"
)

func TestMain(m *testing.M) {
	if address := reexec.Argument(); address != "" {
		os.Exit(stayConnected(address))
	}
	goleak.VerifyTestMain(m,
		// fasthttp never ends these.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

const within = 20 * time.Second

// sidecar is a whole one, on ports of its own.
type sidecar struct {
	t        *testing.T
	grpcPort int
	httpPort int
	public   string
	// cancel tells it to end, and stop waits for that, too.
	cancel           context.CancelFunc
	stop             func() error
	transport        *http.Transport
	operator         *reports.Operator
	additionalHeader map[string]string
}

// start starts one that the operator knows, and ends it with the test.
func start(t *testing.T, operator *reports.Operator, args ...string) *sidecar {
	t.Helper()
	return startIn(t, operator, environment, args...)
}

// startIn is start in another environment.
func startIn(t *testing.T, operator *reports.Operator, environment func(string) (string, bool), args ...string) *sidecar {
	t.Helper()
	opts, err := options.Parse(append([]string{
		"--operator=" + operator.URL(), "--token-file=" + operator.TokenFile(),
		"--grpc-port=0", "--http-port=0", "--listen=127.0.0.1:0",
	}, args...), environment, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s := &sidecar{t: t, operator: operator, transport: &http.Transport{}}
	lines := make(chan string, 100)
	log := funcr.NewJSON(func(line string) {
		select {
		case lines <- line:
		default:
		}
	}, funcr.Options{})
	s.run(opts, log)
	for s.httpPort == 0 {
		var line struct {
			Msg                string
			GRPCPort, HTTPPort int
			Listen             string
		}
		select {
		case text := <-lines:
			if err := json.Unmarshal([]byte(text), &line); err == nil && line.Msg == "The sidecar runs" {
				s.grpcPort, s.httpPort, s.public = line.GRPCPort, line.HTTPPort, line.Listen
			}
		case <-time.After(within):
			t.Fatal("the sidecar doesn't start")
		}
	}
	return s
}

func environment(name string) (string, bool) {
	value, ok := map[string]string{"SERVER_NAME": "lobby", "SERVER_NAMESPACE": "games"}[name]
	return value, ok
}

func (s *sidecar) run(opts options.Options, log logr.Logger) {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, program.Process{Name: "sidecar", Log: log}, opts) }()
	ended := false
	s.cancel = cancel
	s.stop = func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(within):
			s.t.Error("the sidecar doesn't end")
			return nil
		}
	}
	s.t.Cleanup(func() {
		s.transport.CloseIdleConnections()
		if err := s.stop(); err != nil {
			s.t.Error(err)
		}
	})
}

// dial connects to the SDK's gRPC server.
func (s *sidecar) dial() *grpc.ClientConn {
	s.t.Helper()
	conn, err := grpc.NewClient(net.JoinHostPort("127.0.0.1", strconv.Itoa(s.grpcPort)),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// call calls the local HTTP server.
func (s *sidecar) call(method, path, body string) (status int, answer string) {
	s.t.Helper()
	return s.callAt(fmt.Sprintf("127.0.0.1:%d", s.httpPort), method, path, body)
}

func (s *sidecar) callAt(address, method, path, body string) (status int, answer string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if host := s.additionalHeader["Host"]; host != "" {
		request.Host = host
	}
	response, err := (&http.Client{Transport: s.transport, Timeout: within}).Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(text))
}

func (s *sidecar) want(method, path, body string, status int, answer string) {
	s.t.Helper()
	gotStatus, got := s.call(method, path, body)
	if gotStatus != status || got != answer {
		s.t.Errorf("%s %s %s: %d %s, want %d %s", method, path, body, gotStatus, got, status, answer)
	}
}

// eventually waits until something holds that comes from another goroutine.
func (s *sidecar) eventually(what string, holds func() bool) {
	s.t.Helper()
	for deadline := time.After(within); !holds(); {
		select {
		case <-deadline:
			s.t.Fatalf("never: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
