package program

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// Logs is what a program logs. A line is a JSON object with time, level and msg, with logger
// where a part of the program has a name, with err where there is one, and with the values that
// it is about.
type Logs struct {
	// Level is the lowest level that is logged. The one below Info is logr's V(1), and so on.
	Level slog.Level
	// Sampled drops most of the lines that repeat many times a second, as the controllers of
	// thousands of objects log them when the API server is down. Those of an Unsampled logger stay.
	Sampled bool
}

// Handler writes the log to out.
func (l Logs) Handler(out io.Writer) slog.Handler {
	handler := slog.Handler(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: l.Level, ReplaceAttr: written}))
	if l.Sampled {
		handler = sampler{handler, &samples{}}
	}
	return handler
}

// unsampled is the key of the value that marks an Unsampled logger. It is in no line.
const unsampled = "dormouse.dev/unsampled"

// Unsampled is a logger each of whose lines is logged, however many there are: an audit log with
// gaps is none. Its user bounds how many somebody else can cause.
func Unsampled(log logr.Logger) logr.Logger { return log.WithValues(unsampled, true) }

func isUnsampled(a slog.Attr) bool { return a.Key == unsampled }

// written is a value as the log has it. It gives logr's levels, which are between those of slog,
// the name of the slog level below, as --log-level uses it.
func written(groups []string, a slog.Attr) slog.Attr {
	if isUnsampled(a) {
		return slog.Attr{}
	}
	if level, is := a.Value.Any().(slog.Level); is && len(groups) == 0 && a.Key == slog.LevelKey && level < slog.LevelInfo {
		a.Value = slog.StringValue(slog.LevelDebug.String())
	}
	return a
}

// Of the lines with the same level and message within samplePeriod, the first sampleFirst are
// logged, and of the others each sampleThereafter-th.
const (
	samplePeriod     = time.Second
	sampleFirst      = 100
	sampleThereafter = 100
)

// sampler drops lines that repeat too often, but for those of Unsampled loggers.
type sampler struct {
	slog.Handler
	samples *samples
}

// Handle implements slog.Handler.
func (s sampler) Handle(ctx context.Context, r slog.Record) error {
	if !s.samples.take(r) {
		return nil
	}
	return s.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (s sampler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if slices.ContainsFunc(attrs, isUnsampled) {
		return s.Handler.WithAttrs(attrs)
	}
	return sampler{s.Handler.WithAttrs(attrs), s.samples}
}

// WithGroup implements slog.Handler.
func (s sampler) WithGroup(name string) slog.Handler {
	return sampler{s.Handler.WithGroup(name), s.samples}
}

// samples counts lines.
type samples struct {
	mu     sync.Mutex
	began  time.Time
	counts map[sample]int
}

type sample struct {
	level   slog.Level
	message string
}

// take reports whether a line is to be logged.
func (s *samples) take(r slog.Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil || r.Time.Sub(s.began) >= samplePeriod {
		s.began, s.counts = r.Time, map[sample]int{}
	}
	key := sample{r.Level, r.Message}
	s.counts[key]++
	n := s.counts[key]
	return n <= sampleFirst || (n-sampleFirst)%sampleThereafter == 0
}
