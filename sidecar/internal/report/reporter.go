package report

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/sidecar/internal/game"
	"dormouse.dev/dormouse/sidecar/internal/metrics"
)

const (
	// pace is the shortest time between two reports if the second one can wait.
	pace = 100 * time.Millisecond
	// lastWord bounds the last report.
	lastWord = time.Second
)

// retries are the delays between reports that fail.
func retries() wait.Backoff {
	return wait.Backoff{Duration: pace, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 5 * time.Second}
}

// Reporter reports a game to the operator.
type Reporter struct {
	server   string
	instance string
	game     *game.Game
	client   *client
	metrics  *metrics.Metrics
	log      logr.Logger

	// lastTimeout bounds the last report.
	lastTimeout time.Duration
	// within is a moment within some time.
	within func(time.Duration) time.Duration

	// The fields below are Run's alone.
	sequence uint64
	flights  []flight
	landed   chan landing
	// answered is the latest report whose answer was taken, and seen is that answer's version.
	answered uint64
	seen     string
	// last is the latest report, and sent is when it was sent.
	last reportapi.Report
	sent time.Time
	// deniedSince is as in reportapi.DeniedSinceHeader; 0: the latest report doesn't deny it.
	deniedSince uint64
	// Until holdOff nothing is sent, after a failure. Until comeBack nothing is sent that says what the last report
	// said, after its replica has ended.
	holdOff, comeBack time.Time
	backoff           wait.Backoff
	// mute is set after a refusal of the report's content, until the next answer: an operator of an
	// earlier version may not know Looked.
	mute bool
	// complaint is the failure that was logged last; empty: the last report succeeded.
	complaint string
}

// flight is a report under way.
type flight struct {
	sequence uint64
	cancel   context.CancelFunc
}

// landing is the result of a report.
type landing struct {
	sequence uint64
	renews   bool
	answer   reportapi.Answer
	// parted is set where the operator's replica closed the connection that it had.
	parted bool
	err    error
}

// New makes a reporter for the named Server. The operator's address is like http://host:port.
func New(operator, server string, token Token, g *game.Game, m *metrics.Metrics, log logr.Logger) (*Reporter, error) {
	c, err := newClient(operator, token)
	if err != nil {
		return nil, err
	}
	return &Reporter{
		server: server, instance: rand.Text(), game: g, client: c, metrics: m, log: log,
		landed: make(chan landing, maxConnections), backoff: retries(), lastTimeout: lastWord, within: mathrand.N[time.Duration],
	}, nil
}

// Run reports until the context ends, and then once more.
func (r *Reporter) Run(ctx context.Context) error {
	// Reports under way go on until the last report is sent.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer r.client.http.CloseIdleConnections()
	defer r.drain()
	defer stop()
	for ctx.Err() == nil {
		snapshot, changed := r.game.Watch()
		timer := time.NewTimer(r.step(running, snapshot))
		select {
		case <-changed:
		case <-timer.C:
		case l := <-r.landed:
			r.land(l)
		case <-ctx.Done():
		}
		timer.Stop()
	}
	r.sayLast(running)
	return nil
}

// drain waits for the reports under way, which have been cancelled.
func (r *Reporter) drain() {
	for range r.flights {
		<-r.landed
	}
}

// step sends a report if it is time, and returns how long there is nothing to do unless
// something happens.
func (r *Reporter) step(ctx context.Context, snapshot game.Snapshot) time.Duration {
	report := r.compose(snapshot)
	inTheAir := len(r.flights) > 0 && r.flights[len(r.flights)-1].sequence == r.sequence
	news := !inTheAir || !alike(report, r.last)
	if !news {
		return time.Hour
	}
	at := r.holdOff
	if r.comeBack.After(at) && alike(report, r.last) {
		at = r.comeBack
	}
	if !urgent(r.last, report) && r.sent.Add(pace).After(at) {
		at = r.sent.Add(pace)
	}
	if wait := time.Until(at); wait > 0 {
		return wait
	}
	r.send(ctx, report)
	return time.Hour
}

// compose builds the report of a game's current state.
func (r *Reporter) compose(s game.Snapshot) reportapi.Report {
	report := reportapi.Report{Server: r.server, Instance: r.instance, Seen: r.seen}
	if !s.Restored {
		report.Restore = true
		return report
	}
	report.Game, report.DeletionAllowed, report.ShutdownSeen, report.Looked = s.Game, s.DeletionAllowed, s.ShutdownSeen, s.Looked
	if s.Memory != (reportapi.Memory{}) {
		report.Memory = &s.Memory
	}
	if r.mute {
		report.Looked = ""
	}
	return report
}

// alike reports whether two reports have the same content.
func alike(a, b reportapi.Report) bool {
	a.Sequence, a.Seen, b.Sequence, b.Seen = 0, "", 0, ""
	return reflect.DeepEqual(a, b)
}

// urgent reports whether somebody may be waiting for the change.
func urgent(before, now reportapi.Report) bool {
	return before.Restore != now.Restore ||
		before.Game.State != now.Game.State ||
		(before.DeletionAllowed && !now.DeletionAllowed) ||
		(!before.ShutdownSeen && now.ShutdownSeen) ||
		(before.Looked != now.Looked && now.Looked != "")
}

// send sends a report in the background. The operator ends the one that it holds. If another
// replica holds that, it is cancelled when there would be a third.
func (r *Reporter) send(ctx context.Context, report reportapi.Report) {
	if len(r.flights) == maxConnections {
		r.flights[0].cancel()
		for len(r.flights) == maxConnections {
			r.land(<-r.landed)
		}
	}
	r.comeBack = time.Time{}
	renews := r.sequence > 0 && r.answered == r.sequence && alike(report, r.last)
	r.sequence++
	report.Sequence = r.sequence
	r.last, r.sent = report, time.Now()
	deniedSince := r.since(report)
	ctx, cancel := context.WithCancel(ctx)
	r.flights = append(r.flights, flight{report.Sequence, cancel})
	go func() {
		defer cancel()
		answer, parted, err := r.client.send(ctx, report, deniedSince, renews)
		r.landed <- landing{report.Sequence, renews, answer, parted, err}
	}()
}

// since takes in the report that is sent now, and is its reportapi.DeniedSinceHeader; 0: it has
// none.
func (r *Reporter) since(report reportapi.Report) uint64 {
	if report.Restore || report.DeletionAllowed {
		r.deniedSince = 0
	} else if r.deniedSince == 0 {
		r.deniedSince = r.sequence
	}
	return r.deniedSince
}

func (r *Reporter) landFlight(sequence uint64) {
	r.flights = slices.DeleteFunc(r.flights, func(f flight) bool { return f.sequence == sequence })
}

// land takes in the result of a report.
func (r *Reporter) land(l landing) {
	r.landFlight(l.sequence)
	if l.sequence == r.sequence && l.parted && (l.renews || l.err == nil) {
		// What was said last arrived. Its replica ends, and thousands come to another one.
		r.comeBack = time.Now().Add(r.within(reportapi.ReturnTime))
		if latest := r.sent.Add(reportapi.RenewalTime + reportapi.ReturnTime); r.comeBack.After(latest) {
			r.comeBack = latest // the report doesn't count for much longer
		}
	}
	switch {
	case l.err == nil && l.sequence > r.answered:
		r.answered, r.seen = l.sequence, l.answer.Version
		r.backoff, r.holdOff, r.mute = retries(), time.Time{}, false
		if r.complaint != "" {
			r.log.Info("Reports arrive again")
			r.complaint = ""
		}
		r.metrics.Reported(metrics.ReportAnswered)
		r.game.TakeAnswer(l.answer)
	case l.err == nil || l.sequence < r.sequence:
		// There is a newer one, and its result counts.
		r.metrics.Reported(metrics.ReportReplaced)
	default:
		r.fail(l.err)
	}
}

// fail delays the next report, and logs the reason once.
func (r *Reporter) fail(err error) {
	wait := r.backoff.Step()
	r.holdOff = time.Now().Add(wait)
	outcome := metrics.ReportFailed
	var refusal *refusal
	if errors.As(err, &refusal) {
		outcome = metrics.ReportRefused
		r.mute = r.mute || refusal.status == http.StatusBadRequest
	}
	r.metrics.Reported(outcome)
	if err.Error() != r.complaint {
		r.complaint = err.Error()
		wait = max(wait, time.Until(r.comeBack))
		r.log.Error(err, "A report failed; it is sent again", "in", wait.Round(time.Millisecond).String())
	}
}

// sayLast reports once more: the game's process has ended by now. It doesn't wait for the
// operator's orders.
func (r *Reporter) sayLast(ctx context.Context) {
	snapshot := r.game.Snapshot()
	if !snapshot.Restored {
		return
	}
	r.seen = ""
	ctx, cancel := context.WithTimeout(ctx, r.lastTimeout)
	defer cancel()
	r.send(ctx, r.compose(snapshot))
	for l := range r.landed {
		if r.landFlight(l.sequence); l.sequence == r.sequence {
			return
		}
	}
}
