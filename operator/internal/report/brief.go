package report

import (
	"context"
	"sync"
	"time"
)

// brief makes contexts that end after answerTime, or up to a tenth of it later: those who come within that tenth
// share one. Thousands of reports would each make two, with timers.
type brief struct {
	mu  sync.Mutex
	ctx context.Context //nolint:containedctx // it is one for several callers
	// until is how long the context is given out.
	until time.Time
}

// context is one that nobody has to cancel.
func (b *brief) context() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); !now.Before(b.until) {
		const share = answerTime / 10
		ctx, cancel := context.WithTimeout(context.Background(), answerTime+share)
		context.AfterFunc(ctx, cancel)
		b.ctx, b.until = ctx, now.Add(share)
	}
	return b.ctx
}
