package report

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/internal/serviceauth"
	"dormouse.dev/dormouse/operator/internal/metrics"
)

const (
	// answerTime bounds the reads for one answer. They wait only while the cache is being
	// filled.
	answerTime = 900 * time.Millisecond
	// MaxHeld is how many reports a replica holds; more are refused, and go to another.
	MaxHeld = 20_000
	// takers is how many reports are taken at a time, of newcomers and of others each. One takes less than a
	// millisecond, unless a cache is being filled or the keys for its token are being read.
	takers = 8
)

// Verifier checks a token: a service account's, or one that a sidecar signed itself.
type Verifier interface {
	Verify(ctx context.Context, token string) (serviceauth.Identity, error)
}

// Handler takes reports.
type Handler struct {
	verifier Verifier
	cached   client.Reader
	table    *table
	writer   *Writer
	metrics  *metrics.Reports
	hold     time.Duration
	// firstHold is for which part of the time the first report of a sidecar that has come to this replica is held.
	firstHold func(hold time.Duration) time.Duration
	maxHeld   int64
	desk      *desk
	line      *line
	web       *httpserver.Server
	held      atomic.Int64
	brief     brief
}

// refusal is an answer that refuses a report.
type refusal struct {
	code     int
	sentence string
}

func refuse(code int, format string, args ...any) *refusal {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// Register registers the endpoint with a server.
func (h *Handler) Register(s *httpserver.Server) {
	h.web = s
	s.HandleLarge(fasthttp.MethodPost, reportapi.ReportPath, reportapi.MaxReportBytes, h.mayBeLarge, h.serve)
}

// mayBeLarge reports whether a body may be larger than usual: the caller has a valid token.
func (h *Handler) mayBeLarge(header *fasthttp.RequestHeader) bool {
	_, refused := identify(h.brief.context(), h.verifier, header)
	return refused == nil
}

// serve has all that needs a large stack done at the desk: for as long as its connection lasts, its own
// goroutine has a small one. While a report is held it has none at all.
func (h *Handler) serve(rc *fasthttp.RequestCtx) {
	lane := &h.desk.newcomers
	if httpserver.CameBack(rc) {
		lane = &h.desk.regulars
	}
	h.desk.do(lane, func() {
		t := h.take(rc)
		if t.waiter != nil {
			r := h.holding(t)
			if !r.tells() {
				r.park(rc)
				return
			}
			t = r.taken
		}
		h.answer(&rc.Response, &t)
	})
}

// answer writes what became of a report.
func (h *Handler) answer(response *fasthttp.Response, t *taken) {
	if t.refused == nil {
		httpserver.JSON(response, fasthttp.StatusOK, t.answer)
	} else {
		answerRefusal(response, t.refused)
	}
	h.metrics.Answered(strconv.Itoa(response.StatusCode()))
}

func answerRefusal(response *fasthttp.Response, r *refusal) {
	switch r.code {
	case fasthttp.StatusUnauthorized:
		response.Header.Set(fasthttp.HeaderWWWAuthenticate, "Bearer")
	case fasthttp.StatusServiceUnavailable:
		response.Header.Set(fasthttp.HeaderRetryAfter, "1")
	}
	switch r.code {
	case fasthttp.StatusUnauthorized, fasthttp.StatusNotFound, fasthttp.StatusTooManyRequests, fasthttp.StatusServiceUnavailable:
		// Another replica may accept it, which a kept connection would never reach.
		response.SetConnectionClose()
	}
	httpserver.Error(response, r.code, r.sentence)
}

// taken is a report that was taken, or what became of it.
type taken struct {
	id   serviceauth.Identity
	name string
	seen string
	uid  types.UID
	// waiter is set where the report is to be held, and hold is for how long.
	waiter  *waiter
	hold    time.Duration
	answer  *reportapi.Answer
	refused *refusal
}

// take checks a report and remembers it. Where it is to be held, it is counted as that.
func (h *Handler) take(rc *fasthttp.RequestCtx) (t taken) {
	ctx := h.brief.context()
	if t.id, t.refused = identify(ctx, h.verifier, &rc.Request.Header); t.refused != nil {
		return t
	}
	report, err := parse(rc.PostBody())
	if err != nil {
		t.refused = refuse(fasthttp.StatusBadRequest, "%s", err)
		return t
	}
	// The body may be large, and is parsed.
	rc.Request.ResetBody()
	t.name, t.seen = report.Server, report.Seen
	v, refused := h.see(ctx, t.id, report.Server)
	if refused != nil {
		t.refused = refused
		return t
	}
	defer v.free()
	server := &v.server
	if report.Restore {
		h.table.announce(server.UID, report.Instance)
		h.tell(&t, v)
		t.answer.Restored, t.answer.RestoredMemory = restored(server, t.id.PodUID, h.table.last(server.UID))
		return t
	}
	if h.held.Add(1) > h.maxHeld {
		h.held.Add(-1)
		h.metrics.Refused()
		t.refused = refuse(fasthttp.StatusServiceUnavailable, "this replica holds %d reports already: ask again, which may reach another", h.maxHeld)
		return t
	}
	defer func() {
		if t.waiter == nil {
			h.held.Add(-1) // else whoever holds it does
		}
	}()
	report.Memory = memoryOf(rc.Request.Header.Peek(reportapi.MemoryHeader))
	s := &said{podName: t.id.PodName, podUID: t.id.PodUID, report: report, at: time.Now(), deniedSince: deniedSince(string(rc.Request.Header.Peek(reportapi.DeniedSinceHeader)), report)}
	if g := server.Status.Game; g != nil {
		s.base = g.Instance
	}
	w := h.table.take(server.UID, client.ObjectKeyFromObject(server), s)
	if w == nil {
		h.tell(&t, v)
		return t
	}
	h.writer.offer(server, s)
	t.uid, t.waiter, t.hold = server.UID, w, h.holdOf(rc)
	return t
}

// holdOf is for how long a report is held where there is no news: for longer where its caller lets it be.
func (h *Handler) holdOf(rc *fasthttp.RequestCtx) time.Duration {
	seconds, err := strconv.ParseUint(string(rc.Request.Header.Peek(reportapi.HoldHeader)), 10, 8)
	if err != nil {
		return h.hold
	}
	return max(h.hold, min(time.Duration(seconds)*time.Second, reportapi.RenewalTime))
}

// look makes the answer anew, from what the cache has now.
func (h *Handler) look(t *taken) {
	v, refused := h.see(h.brief.context(), t.id, t.name)
	if t.refused = refused; refused == nil {
		h.tell(t, v)
		v.free()
	} else if refused.code == fasthttp.StatusNotFound {
		h.table.forget(t.uid)
	}
}

// tell makes the sidecar's current answer, with the look that is under way. Its version takes most of
// the time.
func (h *Handler) tell(t *taken, v *view) {
	answer := unversioned(&v.server, &v.pod, &v.gameType)
	look, last := h.table.lastAnswer(v.server.UID)
	answer.Look = look
	from := sources{server: v.server.ResourceVersion, pod: v.pod.ResourceVersion, gameType: v.gameType.ResourceVersion, look: look}
	if last.version == "" || last.from != from {
		last = answered{from, version(answer)}
		h.table.noteAnswer(v.server.UID, last)
	}
	answer.Version = last.version
	t.answer = &answer
}

// identify verifies a request's token and returns whose it is.
func identify(ctx context.Context, v Verifier, header *fasthttp.RequestHeader) (serviceauth.Identity, *refusal) {
	token, err := serviceauth.BearerToken(header.Peek(fasthttp.HeaderAuthorization))
	if err != nil {
		return serviceauth.Identity{}, refuse(fasthttp.StatusUnauthorized, "%s", err)
	}
	id, err := v.Verify(ctx, token)
	switch {
	case errors.Is(err, serviceauth.ErrKeysUnavailable):
		return id, refuse(fasthttp.StatusServiceUnavailable, "%s", err)
	case err != nil:
		return id, refuse(fasthttp.StatusUnauthorized, "%s", err)
	}
	return id, nil
}
