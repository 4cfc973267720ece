// Package errortracking tells Sentry of what should never happen: panics, and
// errors that a reconciler returns. It is off unless SENTRY_DSN is set.
//
// What is sent is an error's words, a panic's stack, and tags that name the
// object. Objects themselves, requests, headers, tokens, variables and the
// environment never are: see scrub.go. Nothing here blocks its caller, but for
// a crash, which waits a moment for its report to be sent.
package errortracking

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/getsentry/sentry-go"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"dormouse.dev/dormouse/internal/buildinfo"
)

// flushTimeout bounds how much longer a program that ends takes because of what
// is still to be sent.
const flushTimeout = 3 * time.Second

// unknownRelease stands for a build without a version. Without any release the
// SDK looks for one in the environment, and asks git.
const unknownRelease = "unknown"

// Options say who reports, and to whom.
type Options struct {
	// Program is the program's name, a tag of all that is sent.
	Program string
	// DSN is where to send to; empty: nowhere.
	DSN string
	// Environment tells installations apart, such as "production".
	Environment string
	// Release is the build's version; empty if it has none.
	Release string
	// ServerName is the Pod's name.
	ServerName string
}

// FromEnvironment reads the options of a program that runs in a Pod.
func FromEnvironment(program string, env func(string) string) Options {
	return Options{
		Program:     program,
		DSN:         strings.TrimSpace(env("SENTRY_DSN")),
		Environment: env("SENTRY_ENVIRONMENT"),
		Release:     buildinfo.Version(),
		ServerName:  env("POD_NAME"),
	}
}

// Reporter sends reports. A nil Reporter, and one without a DSN, sends nothing.
type Reporter struct {
	program string
	client  *sentry.Client
	counted *prometheus.CounterVec
	once    sync.Once

	repeats *repeats
	limit   *rate.Limiter
}

// Outcomes of a report.
const (
	// sent says that Sentry took it.
	sent = "sent"
	// failed says that Sentry could not be reached, or refused it.
	failed = "failed"
	// repeated says that the same was reported a short time ago.
	repeated = "repeated"
	// dropped says that there was too much else to report.
	dropped = "dropped"
)

// New makes a Reporter. Close ends it.
func New(o Options) (*Reporter, error) {
	r := &Reporter{
		program: o.Program, counted: newCounter(), repeats: newRepeats(), limit: rate.NewLimiter(rate.Every(every), burst),
	}
	if o.DSN == "" {
		return r, nil
	}
	release := o.Release
	if release == "" {
		release = unknownRelease
	}
	serverName := o.ServerName
	if serverName == "" {
		serverName = o.Program // The SDK would send the machine's name.
	}
	client, err := sentry.NewClient(sentry.ClientOptions{
		Dsn:                  o.DSN,
		Environment:          o.Environment,
		Release:              release,
		ServerName:           serverName,
		Integrations:         func([]sentry.Integration) []sentry.Integration { return nil },
		BeforeSend:           func(e *sentry.Event, _ *sentry.EventHint) *sentry.Event { return scrub(e) },
		MaxBreadcrumbs:       -1,
		DisableClientReports: true,
		Transport:            newTransport(r.count),
	})
	if err != nil {
		// What is wrong is not quoted: a DSN has a key in it.
		return nil, errors.New("SENTRY_DSN must be like https://key@host/project, as Sentry shows it " +
			"among a project's client keys: correct it, or unset it to report nothing")
	}
	r.client = client
	return r, nil
}

// Register adds what is counted to a registry.
func (r *Reporter) Register(registry prometheus.Registerer) {
	if r == nil {
		registry.MustRegister(newCounter())
		return
	}
	registry.MustRegister(r.counted)
}

func newCounter() *prometheus.CounterVec {
	counted := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dormouse_error_reports_total",
		Help: "Panics and errors to report to Sentry, by what came of it: sent, failed, repeated (reported a short time ago) or dropped (too many).",
	}, []string{"outcome"})
	for _, outcome := range []string{sent, failed, repeated, dropped} {
		counted.WithLabelValues(outcome)
	}
	return counted
}

// Close sends what is left, within bounds, and ends the Reporter.
func (r *Reporter) Close() {
	if r == nil || r.client == nil {
		return
	}
	r.once.Do(func() {
		r.client.Flush(flushTimeout)
		r.client.Close()
	})
}

func (r *Reporter) count(outcome string) { r.counted.WithLabelValues(outcome).Inc() }
