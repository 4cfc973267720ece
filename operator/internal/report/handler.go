package report

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
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
	// takers is how many reports are taken at a time. One takes less than a millisecond, unless a cache is being
	// filled or the keys for its token are being read.
	takers = 32
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
	maxHeld  int64
	desk     *desk
	line     *line
	web      *httpserver.Server
	held     atomic.Int64
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
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	_, refused := identify(ctx, h.verifier, header)
	return refused == nil
}

// serve has all that needs a large stack done at the desk: for as long as its connection lasts, its own
// goroutine has a small one. While a report is held it has none at all.
func (h *Handler) serve(rc *fasthttp.RequestCtx) {
	h.desk.do(func() {
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
	waiter *waiter
	hold   time.Duration
	// version is the last answer's, and from what that was made from.
	version string
	from    sources
	answer  *reportapi.Answer
	refused *refusal
}

// sources are what an answer is made from: the versions of its objects, and the look.
type sources struct{ server, pod, gameType, look string }

// take checks a report and remembers it. Where it is to be held, it is counted as that.
func (h *Handler) take(rc *fasthttp.RequestCtx) (t taken) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
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
	server, pod, refused := h.find(ctx, t.id, report.Server)
	if refused != nil {
		t.refused = refused
		return t
	}
	if report.Restore {
		h.table.announce(server.UID, report.Instance)
		h.tell(&t, server, pod)
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
		h.tell(&t, server, pod)
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
	server, pod, refused := h.findNow(t.id, t.name)
	if t.refused = refused; refused == nil {
		h.tell(t, server, pod)
	} else if refused.code == fasthttp.StatusNotFound {
		h.table.forget(t.uid)
	}
}

// tell makes the sidecar's current answer, with the look that is under way. Its version takes most of
// the time.
func (h *Handler) tell(t *taken, server *v1alpha1.Server, pod *corev1.Pod) {
	of := h.gameType(server)
	answer := unversioned(server, pod, of)
	answer.Look = h.table.lookOf(server.UID)
	from := sources{server: server.ResourceVersion, pod: pod.ResourceVersion, look: answer.Look}
	if of != nil {
		from.gameType = of.ResourceVersion
	}
	if t.version == "" || t.from != from {
		t.version, t.from = version(answer), from
	}
	answer.Version = t.version
	t.answer = &answer
}

// gameType is a Server's GameType; nil: it has none. One that isn't known yet changes the answer later.
func (h *Handler) gameType(server *v1alpha1.Server) *v1alpha1.GameType {
	name := server.Labels[wellknown.GameTypeLabel]
	if name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	of := &v1alpha1.GameType{}
	if h.cached.Get(ctx, types.NamespacedName{Namespace: server.Namespace, Name: name}, of, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	return of
}

func (h *Handler) findNow(id serviceauth.Identity, name string) (*v1alpha1.Server, *corev1.Pod, *refusal) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	return h.find(ctx, id, name)
}

// find returns the Server that a caller reports for and the caller's Pod, if it may report.
// They are the cache's own and must not be changed.
func (h *Handler) find(ctx context.Context, id serviceauth.Identity, name string) (*v1alpha1.Server, *corev1.Pod, *refusal) {
	pod, refused := livePod(ctx, h.cached, id)
	if refused != nil {
		return nil, nil, refused
	}
	owner := metav1.GetControllerOf(pod)
	// Anybody who may create Pods may name an owner, but only one Pod has the name.
	if owner == nil || owner.Kind != "Server" || groupOf(owner) != v1alpha1.GroupVersion.Group || owner.Name != pod.Name {
		return nil, nil, refuse(fasthttp.StatusForbidden, "Pod %s/%s is not a Server's: only the Pod of a Server may report", pod.Namespace, pod.Name)
	}
	if owner.Name != name {
		return nil, nil, refuse(fasthttp.StatusForbidden, "the token is of the Pod of Server %s: it may report for no other", owner.Name)
	}
	server := &v1alpha1.Server{}
	err := h.cached.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, server, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, refuse(fasthttp.StatusNotFound, "there is no Server %s/%s", pod.Namespace, name)
	case err != nil:
		return nil, nil, refuse(fasthttp.StatusServiceUnavailable, "the cache of Servers can't be read yet: try again")
	case server.UID != owner.UID:
		return nil, nil, refuse(fasthttp.StatusForbidden, "the token is of the Pod of an earlier Server named %s", name)
	}
	return server, pod, nil
}

// livePod is the Pod that a token is bound to, if it is still alive.
func livePod(ctx context.Context, cached client.Reader, id serviceauth.Identity) (*corev1.Pod, *refusal) {
	if id.PodName == "" {
		return nil, refuse(fasthttp.StatusUnauthorized, "the token is bound to no Pod")
	}
	pod := &corev1.Pod{}
	err := cached.Get(ctx, types.NamespacedName{Namespace: id.Namespace, Name: id.PodName}, pod, client.UnsafeDisableDeepCopy)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, refuse(fasthttp.StatusServiceUnavailable, "the cache of Pods can't be read yet: try again")
	}
	if err != nil || string(pod.UID) != id.PodUID || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil, refuse(fasthttp.StatusUnauthorized, "the token is of a Pod that is gone, or isn't known yet")
	}
	// A key that was stolen is good for no Pod that began with another.
	if id.ReportKey != "" && pod.Annotations[wellknown.ReportKeyAnnotation] != id.ReportKey {
		return nil, refuse(fasthttp.StatusUnauthorized, "the token is signed with a key that Pod %s/%s didn't begin with, by its annotation %s", pod.Namespace, pod.Name, wellknown.ReportKeyAnnotation)
	}
	return pod, nil
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

func groupOf(owner *metav1.OwnerReference) string {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return ""
	}
	return gv.Group
}
