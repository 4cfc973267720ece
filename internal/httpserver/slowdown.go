package httpserver

import (
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/time/rate"
)

// Requests that are refused with a 4xx status are answered no faster than this, a
// second and at once, however many connections they come by: whoever sends them
// without end waits, and leaves the processors to good requests. A few cost
// nobody anything.
const (
	refusalRate  = 1000
	refusalBurst = 100
	// refusalsHeld is how many wait at most, and with the rate how long. Beyond it
	// answers go out at once and the connection ends: to hold what the sender has
	// given up would cost more than to answer.
	refusalsHeld = 256
)

// slowdown holds back answers that refuse.
type slowdown struct {
	limiter *rate.Limiter
	held    chan struct{}
}

func newSlowdown() *slowdown {
	return &slowdown{limiter: rate.NewLimiter(refusalRate, refusalBurst), held: make(chan struct{}, refusalsHeld)}
}

// wait returns when the answer may be sent, or the server stops. It is called in the
// goroutine of the connection, which reads nothing more meanwhile.
func (s *slowdown) wait(ctx *fasthttp.RequestCtx) {
	if code := ctx.Response.StatusCode(); code < 400 || code >= 500 || s.limiter.Allow() {
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
