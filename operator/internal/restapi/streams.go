package restapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"dormouse.dev/dormouse/operator/internal/restapi/access"
	"dormouse.dev/dormouse/operator/internal/restapi/hosting"
)

// Bounds of streams.
const (
	// maxStreams and maxStreamsOfUser bound how many are open at once, in total and of a user.
	maxStreams       = 1000
	maxStreamsOfUser = 20
	// maxWaiting and maxWaitingOfUser bound the calls that wait for a Server.
	maxWaiting       = 4096
	maxWaitingOfUser = 1024
	// streamTime is how long a stream lasts: then its caller comes again, and is checked again.
	streamTime = 10 * time.Minute
	// beat is how often a silent stream says that it is there.
	beat = 15 * time.Second
	// writeTime bounds a write to a caller who doesn't read.
	writeTime = 30 * time.Second
	// maxLine bounds a line of a log; the rest of a longer one follows as a line of its own.
	maxLine = 16 << 10
	// logLines is how many lines a log begins with.
	logLines = 200
)

// Event is something that Kubernetes or Dormouse said about a server.
type Event struct {
	At      time.Time `json:"at" doc:"When it happened last."`
	Type    string    `json:"type" doc:"Normal or Warning."`
	Reason  string    `json:"reason" doc:"A word for programs."`
	Object  string    `json:"object" doc:"What it is about, such as Server/server-7."`
	Message string    `json:"message" doc:"A sentence."`
	Count   int32     `json:"count,omitempty" doc:"How often it happened."`
}

// streams bounds what stays open: streams, or calls that wait.
type streams struct {
	client    kubernetes.Interface
	namespace string
	metrics   *Metrics
	// ending is closed when the program ends: streams don't end by themselves.
	ending <-chan struct{}

	// total and ofUser bound how many are open at once, in all and of a user; what is the metric's word
	// for one over them.
	total, ofUser int
	what          string

	mu    sync.Mutex
	open  int
	those map[[32]byte]int
}

// admit counts a stream of a user, and reports whether there may be another one. The caller calls
// leave at its end.
func (s *streams) admit(u *access.User) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.total || s.those[u.Key] >= s.ofUser {
		s.metrics.refused(s.what)
		return nil, false
	}
	s.open++
	s.those[u.Key]++
	s.metrics.opened(s.what, 1)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		s.metrics.opened(s.what, -1)
		if s.those[u.Key]--; s.those[u.Key] == 0 {
			delete(s.those, u.Key)
		}
	}, true
}

// openLog opens a game's log, with so many of its last lines.
func (s *streams) openLog(ctx context.Context, pod, container string, lines int64, follow bool) (io.ReadCloser, error) {
	body, err := s.client.CoreV1().Pods(s.namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: container, Follow: follow, TailLines: &lines,
	}).Stream(ctx)
	if apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) {
		return nil, fail(http.StatusConflict, "path.id", "The game has no log now: it hasn't started yet, or has just ended.")
	}
	if err != nil {
		return nil, fmt.Errorf("read the log of Pod %s: %w", pod, err)
	}
	return body, nil
}

// content is what a stream sends.
type content[T any] struct {
	// values is closed where no more come.
	values <-chan T
	// ended is whether that is because what they are about has ended. It is set before values is
	// closed, and read after.
	ended bool
}

// logs are the lines of a server's log, beginning with the last ones, to the end of the game.
func (s *streams) logs(ctx context.Context, pod, container string) (*content[string], error) {
	body, err := s.openLog(ctx, pod, container, logLines, true)
	if err != nil {
		return nil, err
	}
	values := make(chan string)
	lines := &content[string]{values: values}
	go func() {
		defer close(values)
		defer body.Close()
		for r := bufio.NewReaderSize(body, maxLine); ; {
			line, err := readLine(r)
			if err != nil {
				// A connection that breaks is no end of the game.
				lines.ended = errors.Is(err, io.EOF) && ctx.Err() == nil
				return
			}
			select {
			case values <- line:
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines, nil
}

// readLine reads a line without its end, or as much of one as the buffer holds.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = nil
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
		return "", err
	}
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	return string(line), nil
}

// events are those about a server's objects, beginning with those that Kubernetes still has. They
// have no end.
func (s *streams) events(ctx context.Context, id int64) (*content[Event], error) {
	list, err := s.listEvents(ctx, id, 0)
	if err != nil {
		return nil, err
	}
	found, err := follow(ctx, s, id, list.ResourceVersion, list.Items, eventOf)
	return &content[Event]{values: found}, err
}

// listEvents lists the events about a server's objects; with a limit no more than so many.
func (s *streams) listEvents(ctx context.Context, id, limit int64) (*corev1.EventList, error) {
	of := about(id)
	of.Limit = limit
	list, err := s.client.CoreV1().Events(s.namespace).List(ctx, of)
	if err != nil {
		return nil, fmt.Errorf("list the events of server %d: %w", id, err)
	}
	return list, nil
}

// follow sends a server's events: some first, and then those since a version of the list.
func follow[T any](ctx context.Context, s *streams, id int64, since string, first []corev1.Event, as func(*corev1.Event) T) (<-chan T, error) {
	of := about(id)
	of.ResourceVersion = since
	w, err := s.client.CoreV1().Events(s.namespace).Watch(ctx, of)
	if err != nil {
		return nil, fmt.Errorf("watch the events of server %d: %w", id, err)
	}
	found := make(chan T)
	go func() {
		defer close(found)
		defer w.Stop()
		send := func(e *corev1.Event) bool {
			select {
			case found <- as(e):
				return true
			case <-ctx.Done():
				return false
			}
		}
		for i := range first {
			if !send(&first[i]) {
				return
			}
		}
		for change := range w.ResultChan() {
			e, ok := change.Object.(*corev1.Event)
			if ok && change.Type != watch.Deleted && !send(e) {
				return
			}
		}
	}()
	return found, nil
}

// about selects the events about a server's objects.
func about(id int64) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.name", hosting.Name(id)).String()}
}

func eventOf(e *corev1.Event) Event {
	at := e.LastTimestamp.Time
	if at.IsZero() {
		at = e.EventTime.Time
	}
	if at.IsZero() {
		at = e.CreationTimestamp.Time
	}
	count := e.Count
	if e.Series != nil {
		count, at = e.Series.Count, e.Series.LastObservedTime.Time
	}
	return Event{
		At: at, Type: e.Type, Reason: e.Reason, Message: e.Message, Count: count,
		Object: e.InvolvedObject.Kind + "/" + e.InvolvedObject.Name,
	}
}

// stream sends a content as server-sent events, until no more come, the caller is gone, or
// streamTime is over. The event end says that there is nothing to come back for.
func stream[T any](ctx context.Context, ending <-chan struct{}, w http.ResponseWriter, name string, from *content[T]) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	send := func(format string, args ...any) bool {
		_ = control.SetWriteDeadline(time.Now().Add(writeTime)) // not all writers have one
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && control.Flush() == nil
	}
	ticks := time.NewTicker(beat)
	defer ticks.Stop()
	if !send(": open\n\n") {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ending:
			return
		case <-ticks.C:
			if !send(": still here\n\n") {
				return
			}
		case v, ok := <-from.values:
			if !ok {
				if from.ended {
					send("event: end\ndata: {}\n\n")
				}
				return
			}
			data, err := json.Marshal(v)
			if err != nil || !send("event: %s\ndata: %s\n\n", name, data) {
				return
			}
		}
	}
}

// registerStreams adds the streams of a server to the API.
func (s *servers) registerStreams(api huma.API) {
	of := func(path, id, summary, words string) huma.Operation {
		op := operation(http.MethodGet, serverPath+path, id, summary, http.StatusNotFound, http.StatusConflict)
		op.Responses = map[string]*huma.Response{"200": {Description: words, Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}}}}
		return op
	}
	huma.Register(api, of("/logs", "follow-server-log", "Follow the log of a server's game",
		"Server-sent events named line, each a JSON string; end once the game has ended. A stream that ends without that can be opened again."), s.followLog)
	huma.Register(api, of("/events", "follow-server-events", "Follow what Kubernetes and Dormouse say of a server",
		"Server-sent events named event, each a JSON object with at, type, reason, object, message and count."), s.followEvents)
}

func (s *servers) followLog(ctx context.Context, in *ServerRef) (*huma.StreamResponse, error) {
	if err := s.may(ctx, "get", in.ID); err != nil {
		return nil, answerTo(ctx, err)
	}
	pod, container, err := s.hosting.Pod(ctx, in.ID)
	if err != nil {
		return nil, answerTo(ctx, err)
	}
	return open(ctx, s.streams, "line", func(ctx context.Context) (*content[string], error) { return s.streams.logs(ctx, pod, container) })
}

func (s *servers) followEvents(ctx context.Context, in *ServerRef) (*huma.StreamResponse, error) {
	if err := s.may(ctx, "get", in.ID); err != nil {
		return nil, answerTo(ctx, err)
	}
	if _, err := s.hosting.Get(ctx, in.ID); err != nil {
		return nil, answerTo(ctx, err)
	}
	return open(ctx, s.streams, "event", func(ctx context.Context) (*content[Event], error) { return s.streams.events(ctx, in.ID) })
}

// open opens a stream, and answers with it.
func open[T any](ctx context.Context, s *streams, name string, start func(context.Context) (*content[T], error)) (*huma.StreamResponse, error) {
	leave, ok := s.admit(caller(ctx))
	if !ok {
		return nil, later(fail(http.StatusTooManyRequests, "", "Too many streams are open: close some first."))
	}
	// A game that has written nothing has no log yet, which Kubernetes waits for.
	mayTake(ctx, streamTime)
	// It outlives this function, and ends with the request.
	ctx, cancel := context.WithTimeout(ctx, streamTime)
	end := func() { cancel(); leave() }
	from, err := start(ctx)
	if err != nil {
		end()
		return nil, answerTo(ctx, err)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer end()
		_, w := humago.Unwrap(hc)
		stream(ctx, s.ending, w, name, from)
	}}, nil
}
