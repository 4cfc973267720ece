package restapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	utilcache "k8s.io/apimachinery/pkg/util/cache"

	"dormouse.dev/dormouse/internal/callers"
	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/operator/internal/restapi/access"
	"dormouse.dev/dormouse/operator/internal/text"
)

// limiters are how many rates are kept, of users and of addresses each, and for how long after the
// last call.
const (
	limiters   = 16384
	limitersOf = 10 * time.Minute
)

// gate lets calls in: it finds out whose token it is, limits how many calls a token makes, and writes
// an audit line for each change.
type gate struct {
	access  *access.Reviewer
	rate    rate.Limit
	burst   int
	rates   *utilcache.LRUExpireCache
	metrics *Metrics
	log     logr.Logger
	now     func() time.Time
}

type callerKey struct{}

// caller is whose call it is.
func caller(ctx context.Context) *access.User {
	u, _ := ctx.Value(callerKey{}).(*access.User)
	return u
}

type sourceKey struct{}

// withSource notes the remote address of a call.
func withSource(ctx context.Context, remote string) context.Context {
	from, _ := netip.ParseAddrPort(remote)
	return context.WithValue(ctx, sourceKey{}, from.Addr())
}

// source is the address that a call comes from; none if that isn't known.
func source(ctx context.Context) netip.Addr {
	a, _ := ctx.Value(sourceKey{}).(netip.Addr)
	return a
}

// bearer is the token of a request; empty if it has none.
func bearer(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func (g *gate) middleware(ctx huma.Context, next func(huma.Context)) {
	start := g.now()
	ctx = huma.WithContext(ctx, logr.NewContext(withSource(ctx.Context(), ctx.RemoteAddr()), g.log))
	op := ctx.Operation()
	who, audit := "", program.Unsampled(g.log)
	defer func() {
		g.metrics.called(op.OperationID, ctx.Status(), g.now().Sub(start))
		// Whoever shows no good token changes nothing, and is counted above. A game's process says
		// nothing that its sidecar couldn't, and its path may have its code.
		if op.Method != http.MethodGet && who != "" {
			url := ctx.URL()
			audit.Info("Change asked for", "user", who, "operation", op.OperationID, "path", text.Excerpt(url.RequestURI()), "status", ctx.Status(), "from", ctx.RemoteAddr())
		}
	}()
	if len(op.Security) == 0 {
		next(ctx)
		return
	}
	u, err := g.access.User(ctx.Context(), source(ctx.Context()), bearer(ctx.Header("Authorization")))
	g.metrics.askedWho(err)
	if err == nil && !g.allow(u.Key) {
		// There may be any number of these, and they change nothing.
		who, audit = u.Name, g.log
		g.metrics.refused("rate")
		err = later(fail(http.StatusTooManyRequests, "", "This token makes too many calls: slow down."))
	}
	if err != nil {
		write(ctx, answerTo(ctx.Context(), err))
		return
	}
	who = u.Name
	accepted(ctx.Context())
	next(huma.WithValue(ctx, callerKey{}, u))
}

// write answers with an error.
func write(ctx huma.Context, err error) {
	f := &Failure{}
	if !errors.As(err, &f) {
		f = fail(http.StatusInternalServerError, "", "Something went wrong.")
	}
	var headed huma.HeadersError
	if errors.As(err, &headed) {
		for name, values := range headed.GetHeaders() {
			ctx.SetHeader(name, values[0])
		}
	}
	ctx.SetHeader("Content-Type", "application/json")
	ctx.SetStatus(f.status)
	_ = json.NewEncoder(ctx.BodyWriter()).Encode(f) // the caller may be gone
}

func (g *gate) allow(key [sha256.Size]byte) bool { return allow(g.rates, key, g.rate, g.burst) }

// allow reports whether one more is within the rate of a key.
func allow(rates *utilcache.LRUExpireCache, key any, perSecond rate.Limit, atOnce int) bool {
	v, ok := rates.Get(key)
	if !ok {
		v = rate.NewLimiter(perSecond, atOnce)
	}
	// Two first calls at once may count as one.
	rates.Add(key, v, limitersOf)
	return v.(*rate.Limiter).Allow()
}

// Tokens that nobody has shown before, which the API server is asked about, a second and at once: of
// one address, and in all. Half is left for others, whatever comes from an address.
const (
	unknownOfAddress, unknownOfAddressAtOnce = 25, 50
	unknownTokens, unknownAtOnce             = 50, 100
)

// unknowns bounds how many tokens are looked at that nobody has shown before.
type unknowns struct {
	ofAddress *utilcache.LRUExpireCache
	all       *rate.Limiter
}

func newUnknowns() unknowns {
	return unknowns{utilcache.NewLRUExpireCache(limiters), rate.NewLimiter(unknownTokens, unknownAtOnce)}
}

// Allow implements access.Limiter.
func (u unknowns) Allow(from netip.Addr) bool {
	return allow(u.ofAddress, callers.Of(from), unknownOfAddress, unknownOfAddressAtOnce) && u.all.Allow()
}
