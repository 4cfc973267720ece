package httpserver

import (
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/time/rate"
)

// The rate and burst at which requests are refused with a 4xx status, over all connections. A
// sender of endless bad requests has to wait, and leaves the processors to good requests. A few
// refusals cost nobody anything.
const (
	refusalRate  = 1000
	refusalBurst = 100
	// refusalsHeld is how many refusals wait at most, and with the rate how long. Further ones
	// are sent at once and their connections closed: holding requests that their sender has
	// given up would cost more than answering.
	refusalsHeld = 256
)

// slowdown delays refusals.
type slowdown struct {
	limiter *rate.Limiter
	held    chan struct{}
}

func newSlowdown() *slowdown {
	return &slowdown{limiter: rate.NewLimiter(refusalRate, refusalBurst), held: make(chan struct{}, refusalsHeld)}
}

// allows reports whether an answer may be sent at once.
func (s *slowdown) allows(code int) bool {
	return code < 400 || code >= 500 || s.limiter.Allow()
}

// wait returns when the answer may be sent, or the server stops. The connection's goroutine
// calls it, and reads nothing more meanwhile.
func (s *slowdown) wait(ctx *fasthttp.RequestCtx) {
	if s.allows(ctx.Response.StatusCode()) {
		return
	}
	select {
	case s.held <- struct{}{}:
		defer func() { <-s.held }()
	default:
		ctx.SetConnectionClose()
		return
	}
	timer := time.NewTimer(s.limiter.Reserve().Delay())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
