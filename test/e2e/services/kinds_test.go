package services

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// exchange is what a client says and hears in one go. It gives the address at which the server
// saw the client.
type exchange func(context.Context, *site) (from string, err error)

func exchanges() map[string]exchange {
	return map[string]exchange{
		"a body of 1 MiB":    bigBody,
		"a slow body":        slowBody,
		"a chunked stream":   chunkedStream,
		"server-sent events": serverSentEvents,
		"a WebSocket":        webSocket,
		"unary gRPC":         unaryRPC,
		"streaming gRPC":     streamingRPC,
	}
}

// Whatever is spoken over HTTP wakes a web service and is served, all of it and in order: the
// kinds come together while it sleeps, and once more when they go straight to the server.
func TestEachKindOfRequestIsServedColdAndWarm(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	s := asleepSite(ctx, t, env.Game{Namespace: ns})
	all(ctx, t, s, "cold", true)
	s.awake(ctx, t)
	s.client.CloseIdleConnections()
	all(ctx, t, s, "warm", false)
	suite.OneServer(ctx, t, ns)
}

// all makes one exchange of each kind at the same time.
func all(ctx context.Context, t *testing.T, s *site, when string, resolved bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
	defer cancel()
	var group sync.WaitGroup
	for kind, do := range exchanges() {
		group.Go(func() {
			from, err := do(ctx, s)
			if err != nil {
				t.Errorf("%s, %s: %v", kind, when, err)
				return
			}
			if through := s.throughResolver(t, from); through != resolved {
				t.Errorf("%s, %s: the client came from %s; through a resolver: %t, want %t", kind, when, from, through, resolved)
			}
		})
	}
	group.Wait()
}

// random are bytes by chance.
func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // It never fails.
	return b
}

// sum posts a body, and checks that the server had it whole.
func (s *site) sum(ctx context.Context, body io.Reader, want []byte) (from string, err error) {
	res, err := s.do(ctx, http.MethodPost, "/sum", body)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	heard, err := io.ReadAll(res.Body)
	if err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	if hash := sha256.Sum256(want); string(heard) != hex.EncodeToString(hash[:]) {
		return "", fmt.Errorf("the server had another body: %s %s", res.Status, heard)
	}
	return res.Header.Get(clientHeader), nil
}

// do makes a request, and wants it to succeed.
func (s *site) do(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url(path), body)
	if err != nil {
		return nil, fmt.Errorf("build the request: %w", err)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= http.StatusBadRequest {
		return nil, errors.Join(fmt.Errorf("%s %s was answered %s", method, path, res.Status), res.Body.Close())
	}
	return res, nil
}

func bigBody(ctx context.Context, s *site) (string, error) {
	body := random(1 << 20)
	return s.sum(ctx, bytes.NewReader(body), body)
}

// slowBody sends a piece each tenth of a second.
func slowBody(ctx context.Context, s *site) (string, error) {
	const pieces, size = 15, 500
	body := random(pieces * size)
	reader, writer := io.Pipe()
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for piece := range pieces {
			if _, err := writer.Write(body[piece*size:][:size]); err != nil {
				return
			}
			<-tick.C
		}
		_ = writer.Close()
	}()
	from, err := s.sum(ctx, reader, body)
	return from, errors.Join(err, reader.Close())
}

// chunkedStream sends a piece only when the one before it has come back.
func chunkedStream(ctx context.Context, s *site) (string, error) {
	reader, writer := io.Pipe()
	defer func() { _ = writer.Close() }()
	go func() { _, _ = io.WriteString(writer, "piece 0") }()
	res, err := s.do(ctx, http.MethodPost, "/echo", reader)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	for i := range 3 {
		heard := make([]byte, len("piece 0"))
		if _, err := io.ReadFull(res.Body, heard); err != nil || string(heard) != fmt.Sprintf("piece %d", i) {
			return "", fmt.Errorf("heard %q: %w", heard, errors.Join(err, errUnexpected))
		}
		if _, err := fmt.Fprintf(writer, "piece %d", i+1); err != nil {
			return "", fmt.Errorf("say more: %w", err)
		}
	}
	return res.Header.Get(clientHeader), nil
}

// errUnexpected is what a client got that it did not expect.
var errUnexpected = errors.New("that isn't what was expected")

// serverSentEvents asks for an event only when it has had the one before it: who keeps one back
// until there are more gets none.
func serverSentEvents(ctx context.Context, s *site) (string, error) {
	name := rand.Text()
	res, err := s.do(ctx, http.MethodGet, "/events?reader="+name, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	for i := range 3 {
		if !lines.Scan() || lines.Text() != fmt.Sprintf("data: %d", i) || !lines.Scan() {
			return "", fmt.Errorf("event %d was %q: %w", i, lines.Text(), errors.Join(lines.Err(), errUnexpected))
		}
		if i == 2 {
			break
		}
		next, err := s.do(ctx, http.MethodPost, "/next?reader="+name, nil)
		if err != nil {
			return "", fmt.Errorf("ask for the next event: %w", err)
		}
		_ = next.Body.Close()
	}
	return res.Header.Get(clientHeader), nil
}

func webSocket(ctx context.Context, s *site) (string, error) {
	conn, res, err := websocket.Dial(ctx, "ws://"+s.address+"/socket", &websocket.DialOptions{HTTPClient: s.client}) //nolint:bodyclose // the package closes it
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.CloseNow() }()
	for i := range 3 {
		said := fmt.Sprintf("message %d", i)
		if err := conn.Write(ctx, websocket.MessageText, []byte(said)); err != nil {
			return "", err
		}
		if _, heard, err := conn.Read(ctx); err != nil || string(heard) != said {
			return "", fmt.Errorf("heard %q: %w", heard, errors.Join(err, errUnexpected))
		}
	}
	return res.Header.Get(clientHeader), conn.Close(websocket.StatusNormalClosure, "")
}

func unaryRPC(ctx context.Context, s *site) (string, error) {
	return s.talkRPC(func(conn *grpc.ClientConn) (string, error) {
		var heard wrapperspb.StringValue
		if err := conn.Invoke(ctx, "/web.Chat/Say", wrapperspb.String("hello"), &heard, grpc.WaitForReady(true)); err != nil {
			return "", err
		}
		return said(&heard, "hello")
	})
}

func streamingRPC(ctx context.Context, s *site) (string, error) {
	return s.talkRPC(func(conn *grpc.ClientConn) (string, error) { return stream(ctx, conn) })
}

func stream(ctx context.Context, conn *grpc.ClientConn) (from string, err error) {
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := conn.NewStream(ctx, both, "/web.Chat/Talk", grpc.WaitForReady(true))
	if err != nil {
		return "", err
	}
	for _, word := range []string{"hello", "and", "more"} {
		var heard wrapperspb.StringValue
		if err := errors.Join(stream.SendMsg(wrapperspb.String(word)), stream.RecvMsg(&heard)); err != nil {
			return "", err
		}
		if from, err = said(&heard, word); err != nil {
			return "", err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return "", err
	}
	if err := stream.RecvMsg(&wrapperspb.StringValue{}); !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("at the end there was %w", errors.Join(err, errUnexpected))
	}
	return from, nil
}

// said is from where a client came that was answered with its own word.
func said(heard *wrapperspb.StringValue, word string) (from string, err error) {
	from, rest, _ := strings.Cut(heard.GetValue(), " ")
	if rest != word {
		return "", fmt.Errorf("heard %q after %q: %w", rest, word, errUnexpected)
	}
	return from, nil
}
