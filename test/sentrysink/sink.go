// Package sentrysink stands in for Sentry's server: it takes the envelopes that
// programs send and keeps them for tests to read.
package sentrysink

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// Project is the number of the project that takes events.
const Project = "42"

// Key is the key that senders must have.
const Key = "thekey"

// Event is a report as it arrived.
type Event struct {
	// Text is all that was sent, the request's headers and every item, for
	// looking whether something is in it that should not be.
	Text string
	// Fields has the event's own, as they are named on the wire.
	Fields map[string]any

	Level       string            `json:"level"`
	Release     string            `json:"release"`
	Environment string            `json:"environment"`
	ServerName  string            `json:"server_name"`
	Tags        map[string]string `json:"tags"`
	Exception   []struct {
		Type       string `json:"type"`
		Value      string `json:"value"`
		Stacktrace struct {
			Frames []map[string]any `json:"frames"`
		} `json:"stacktrace"`
	} `json:"exception"`
}

// Sink is the server.
type Sink struct {
	server *httptest.Server

	mu       sync.Mutex
	events   []Event
	problems []string
	arrived  chan struct{}
	refuse   int
}

// Start starts a Sink on loopback.
func Start() *Sink {
	s := &Sink{arrived: make(chan struct{})}
	s.server = httptest.NewServer(http.HandlerFunc(s.take))
	return s
}

// Close ends the Sink.
func (s *Sink) Close() { s.server.Close() }

// DSN is where to send to.
func (s *Sink) DSN() string {
	return "http://" + Key + "@" + s.server.Listener.Addr().(*net.TCPAddr).String() + "/" + Project
}

// Refuse makes the Sink answer every report with a status; 0 takes them again.
func (s *Sink) Refuse(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = status
}

// Events are those that arrived so far, what was wrong with requests that were
// none, and a channel that is closed when there is more of either.
func (s *Sink) Events() (events []Event, problems []string, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Event(nil), s.events...), append([]string(nil), s.problems...), s.arrived
}

func (s *Sink) take(w http.ResponseWriter, r *http.Request) {
	events, err := read(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != 0 {
		w.WriteHeader(s.refuse)
		return
	}
	if err != nil {
		s.problems = append(s.problems, err.Error())
		w.WriteHeader(http.StatusBadRequest)
	}
	s.events = append(s.events, events...)
	close(s.arrived)
	s.arrived = make(chan struct{})
}

// read takes an envelope apart: a line of JSON for the whole, and for each item a
// line about it and its content.
func read(r *http.Request) ([]Event, error) {
	if want := "/api/" + Project + "/envelope/"; r.Method != http.MethodPost || r.URL.Path != want {
		return nil, fmt.Errorf("%s %s; want POST %s", r.Method, r.URL.Path, want)
	}
	if auth := r.Header.Get("X-Sentry-Auth"); !strings.Contains(auth, "sentry_key="+Key) {
		return nil, fmt.Errorf("the authorization %q has not the key", auth)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read the envelope: %w", err)
	}
	var headers bytes.Buffer
	_ = r.Header.Write(&headers)
	text := headers.String() + string(body)
	reader := bufio.NewReader(bytes.NewReader(body))
	if _, err := reader.ReadString('\n'); err != nil {
		return nil, fmt.Errorf("read the envelope's header: %w", err)
	}
	var events []Event
	for {
		line, err := reader.ReadBytes('\n')
		if err == io.EOF && len(bytes.TrimSpace(line)) == 0 {
			return events, nil
		}
		var about struct {
			Type   string `json:"type"`
			Length int    `json:"length"`
		}
		if err := json.Unmarshal(line, &about); err != nil {
			return nil, fmt.Errorf("read an item's header %q: %w", line, err)
		}
		content := make([]byte, about.Length)
		if _, err := io.ReadFull(reader, content); err != nil {
			return nil, fmt.Errorf("read an item of %d bytes: %w", about.Length, err)
		}
		if _, err := reader.ReadString('\n'); err != nil && err != io.EOF {
			return nil, fmt.Errorf("read an item's end: %w", err)
		}
		if about.Type != "event" {
			return nil, fmt.Errorf("an item is of type %q", about.Type)
		}
		event := Event{Text: text}
		if err := json.Unmarshal(content, &event); err != nil {
			return nil, fmt.Errorf("read an event: %w", err)
		}
		if err := json.Unmarshal(content, &event.Fields); err != nil {
			return nil, fmt.Errorf("read an event: %w", err)
		}
		events = append(events, event)
	}
}
