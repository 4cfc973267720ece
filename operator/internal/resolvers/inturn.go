package resolvers

import (
	"context"
	"time"
)

// MaxAhead is how many of the services that follow a question is about, too. Beside them there is room for others
// that join it, before it is about all.
const MaxAhead = 12

// ViewInTurn is View for one of many services that are asked about one after the other, and for which nobody
// waits: the question is about those that come next, too, and what it is answered may be maxAge old. They are the
// first MaxAhead that coming gives, which is called under a lock.
func (o *Observer) ViewInTurn(ctx context.Context, address, uid string, coming func() []string) View {
	return o.joinInTurn(ctx, address, uid, coming).wait(ctx)
}

// joinInTurn gives the last question about those that came next where it is new enough and about the service, too, or
// joins the next question.
func (o *Observer) joinInTurn(ctx context.Context, address, uid string, coming func() []string) *question {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.podAt(address)
	if q := p.ahead; q != nil && (q == p.next || time.Since(q.sent) < maxAge) {
		if _, ok := q.uids[uid]; ok {
			return q
		}
	}
	uids := []string{uid}
	if p.next == nil && !p.alone { // else others are about to be asked about
		uids = append(uids, coming()...)
		uids = uids[:min(len(uids), 1+MaxAhead)]
	}
	q := o.join(ctx, address, uids)
	if len(uids) > 1 {
		p.ahead = q
	}
	return q
}
