// Package errortracking reports to Sentry what should never happen: panics, and errors that a
// reconciler returns. It is off unless SENTRY_DSN is set.
//
// A report has an error's message, a panic's stack, and tags that name the object. It never has
// objects themselves, requests, headers, tokens, variables or the environment: see scrub.go.
// Nothing here blocks its caller, except for a crash, which waits a short time for its report
// to be sent.
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

// flushTimeout bounds how much longer a program takes to end because reports are still to be
// sent.
const flushTimeout = 3 * time.Second

// unknownRelease stands for a build without a version. Without any release the
// SDK looks for one in the environment, and asks git.
const unknownRelease = "unknown"

// Options are who reports, and where to.
type Options struct {
	// Program is the program's name, a tag of all reports.
	Program string
	// DSN is where to send reports; empty: nowhere.
	DSN string
	// Environment distinguishes installations, such as "production".
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
	// sent means that Sentry accepted it.
	sent = "sent"
	// failed means that Sentry could not be reached, or refused it.
	failed = "failed"
	// repeated means that the same was reported a short time ago.
	repeated = "repeated"
	// dropped means that there were too many other reports.
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
		serverName = o.Program // the SDK would send the machine's name
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
		// The invalid value is not quoted: a DSN has a key in it.
		return nil, errors.New("SENTRY_DSN must be like https://key@host/project, as Sentry shows it " +
			"among a project's client keys: correct it, or unset it to report nothing")
	}
	r.client = client
	return r, nil
}

// Register registers the metrics.
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

// Close sends the remaining reports, within flushTimeout, and ends the Reporter.
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
