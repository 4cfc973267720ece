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

	"dormouse.dev/dormouse/operator/internal/restapi/access"
)

// limiters are how many tokens' rates are kept, and for how long after the last call.
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

// source is the address that a call without a token comes from; none if that isn't known.
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
	ctx = huma.WithContext(ctx, logr.NewContext(ctx.Context(), g.log))
	op := ctx.Operation()
	who := "nobody"
	defer func() {
		g.metrics.called(op.OperationID, ctx.Status(), g.now().Sub(start))
		// A game's process says nothing that its sidecar couldn't, and its path may have its code.
		if op.Method != http.MethodGet && len(op.Security) > 0 {
			url := ctx.URL()
			g.log.Info("Change asked for", "user", who, "operation", op.OperationID, "path", url.RequestURI(), "status", ctx.Status(), "from", ctx.RemoteAddr())
		}
	}()
	if len(op.Security) == 0 {
		from, _ := netip.ParseAddrPort(ctx.RemoteAddr())
		next(huma.WithValue(ctx, sourceKey{}, from.Addr()))
		return
	}
	u, err := g.access.User(ctx.Context(), bearer(ctx.Header("Authorization")))
	if err == nil && !g.allow(u.Key) {
		who = u.Name
		g.metrics.refused("rate")
		err = later(fail(http.StatusTooManyRequests, "", "This token makes too many calls: slow down."))
	}
	if err != nil {
		write(ctx, answerTo(ctx.Context(), err))
		return
	}
	who = u.Name
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

func (g *gate) allow(key [sha256.Size]byte) bool {
	v, ok := g.rates.Get(key)
	if !ok {
		v = rate.NewLimiter(g.rate, g.burst)
	}
	// Two first calls at once may count as one.
	g.rates.Add(key, v, limitersOf)
	return v.(*rate.Limiter).Allow()
}
