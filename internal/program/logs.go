package program

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

// Logs says what a program logs. A line is a JSON object with time, level, msg, logger where a part
// of the program has a name, err where there is one, and what the line is about.
type Logs struct {
	// Level is the least one that is logged. One below it is logr's V(1), and so on.
	Level slog.Level
	// Sampled leaves out most lines of those that say the same many times a second, as the
	// controllers of thousands of objects do when the API server is away.
	Sampled bool
}

func (l Logs) handler(out io.Writer) slog.Handler {
	handler := slog.Handler(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: l.Level, ReplaceAttr: nameLevel}))
	if l.Sampled {
		handler = sampler{handler, &samples{}}
	}
	return handler
}

// nameLevel gives levels between those of slog, which are logr's, the name of the one below: it is
// what --log-level calls them by.
func nameLevel(groups []string, a slog.Attr) slog.Attr {
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

// sampler leaves out what is one line too many.
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
