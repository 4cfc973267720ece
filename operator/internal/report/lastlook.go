package report

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/reportapi"
)

// look is a question to a sidecar that only a newer report than the last answers: may the Server
// be deleted now? The held report is answered with the question's word, and the reply is the
// report that repeats it. That may come to any replica, so all are asked, with one word.
type look struct {
	// asking is how many wait for the reply.
	asking int
	// replied is closed once said is there, which never changes after that.
	replied chan struct{}
	said    *said
	// held is set where the sidecar's report was held when this began.
	held bool
}

// Bounds of looks. One begins at most every lookPace for a Server at a replica: whoever asks
// within that time joins it. A peer answers peerSlack before the replica that asked gives up.
const (
	maxLooks  = 8
	lookPace  = 100 * time.Millisecond
	peerSlack = 150 * time.Millisecond
)

// ask begins a look, or joins the one of that word; nil: there are too many. The caller ends it
// with stopLook.
func (t *table) ask(uid types.UID, server types.NamespacedName, word string) *look {
	t.mu.Lock()
	e := t.entry(uid, server)
	l := e.looks[word]
	if l == nil {
		if len(e.looks) >= maxLooks {
			t.mu.Unlock()
			return nil
		}
		if e.looks == nil {
			e.looks = map[string]*look{}
		}
		l = &look{replied: make(chan struct{}), held: e.waiter != nil}
		e.looks[word] = l
	}
	l.asking++
	t.mu.Unlock()
	t.notify(uid)
	return l
}

// stopLook ends a look for one that asked. The last one ends it for the sidecar, too. An entry
// that is there for the look alone goes with it.
func (t *table) stopLook(uid types.UID, word string, l *look) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[uid]
	if l.asking--; l.asking > 0 || e == nil {
		return
	}
	if e.looks[word] == l {
		delete(e.looks, word)
	}
	if len(e.looks) == 0 && e.last == nil && e.waiter == nil && e.announced == "" {
		delete(t.entries, uid)
	}
}

// reply takes in a report that may be a reply. The table's lock is held.
func (e *entry) reply(s *said) {
	if l := e.looks[s.report.Looked]; l != nil {
		l.said = s
		close(l.replied)
		delete(e.looks, s.report.Looked)
	}
}

// lastAnswer is what a sidecar got last, and the word of a look under way, the same one until it is replied
// to; empty: there is none.
func (t *table) lastAnswer(uid types.UID) (look string, last answered) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[uid]
	if e == nil {
		return "", last
	}
	for w := range e.looks {
		if look == "" || w < look {
			look = w
		}
	}
	return look, e.answered
}

// await asks the sidecar of a Server's Pod and waits until it replies to this replica, or the
// context ends. Where it doesn't reply, what it said last counts if that denies the deletion: the
// writes for that may be under way.
func (t *table) await(ctx context.Context, server *v1alpha1.Server, podUID, word string) reportapi.Looked {
	l := t.ask(server.UID, client.ObjectKeyFromObject(server), word)
	if l == nil {
		return reportapi.Looked{Held: true} // many ask already, and it is of no use to ask again
	}
	defer t.stopLook(server.UID, word, l)
	var s *said
	select {
	case <-l.replied:
		s = l.said
	case <-ctx.Done():
		s = t.last(server.UID)
		if s == nil || s.report.DeletionAllowed || time.Since(s.at) > reportapi.FreshFor {
			return reportapi.Looked{Held: l.held}
		}
	}
	if s.podUID != podUID {
		return reportapi.Looked{Held: l.held}
	}
	looked := reportapi.Looked{Replied: true, DeletionAllowed: s.report.DeletionAllowed, ShutdownSeen: s.report.ShutdownSeen}
	if p := s.report.Game.Players; p != nil {
		looked.Players = p.Current
	}
	return looked
}

// lookHandler has sidecars that report to this replica look for another replica.
type lookHandler struct{ *recentHandler }

func (h lookHandler) register(s *httpserver.Server) {
	s.Handle(fasthttp.MethodGet, reportapi.LookPath, h.serve)
}

func (h lookHandler) serve(rc *fasthttp.RequestCtx) {
	looked, refused := h.look(rc)
	if refused == nil {
		httpserver.JSON(&rc.Response, fasthttp.StatusOK, looked)
	} else {
		answerRefusal(&rc.Response, refused)
	}
	h.metrics.AnsweredPeer(strconv.Itoa(rc.Response.StatusCode()))
}

func (h lookHandler) look(rc *fasthttp.RequestCtx) (*reportapi.Looked, *refusal) {
	ctx, cancel := context.WithTimeout(context.Background(), reportapi.LookTime-peerSlack)
	defer cancel()
	if refused := h.fromOperator(ctx, &rc.Request.Header); refused != nil {
		return nil, refused
	}
	key := types.NamespacedName{
		Namespace: string(rc.QueryArgs().Peek(reportapi.NamespaceQuery)), Name: string(rc.QueryArgs().Peek(reportapi.ServerQuery)),
	}
	if len(validation.IsDNS1123Label(key.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(key.Name)) > 0 {
		return nil, refuse(fasthttp.StatusBadRequest, "%s and %s must be the names of a namespace and of a Server in it", reportapi.NamespaceQuery, reportapi.ServerQuery)
	}
	word, podUID := string(rc.QueryArgs().Peek(reportapi.WordQuery)), string(rc.QueryArgs().Peek(reportapi.PodQuery))
	if word == "" || len(word) > reportapi.MaxInstanceBytes {
		return nil, refuse(fasthttp.StatusBadRequest, "%s must have from 1 to %d bytes", reportapi.WordQuery, reportapi.MaxInstanceBytes)
	}
	server := &v1alpha1.Server{}
	if err := h.cached.Get(ctx, key, server, client.UnsafeDisableDeepCopy); err != nil {
		return nil, refuse(fasthttp.StatusNotFound, "there is no Server %s, or it isn't known yet", key)
	}
	looked := h.table.await(ctx, server, podUID, word)
	return &looked, nil
}

// Look has the sidecar of a Server's Pod look anew whether the Server may be deleted, and waits
// for its reply, but no longer than reportapi.LookTime. Not Replied: the sidecar is of an earlier
// version, or it or the game doesn't answer, and nothing that is newer than the Server's status
// denies the deletion.
func (p *Peers) Look(ctx context.Context, server *v1alpha1.Server, podUID types.UID) reportapi.Looked {
	key := fmt.Sprintf("%s/%s/%d", server.UID, podUID, time.Now().UnixMilli()/lookPace.Milliseconds())
	looked, _, _ := p.looks.Do(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(p.lookTime, reportapi.LookTime))
		defer cancel()
		return p.look(ctx, server, string(podUID)), nil
	})
	return looked.(reportapi.Looked) //nolint:forcetypeassert // it is made above
}

// LookPatiently is Look, and where no replica has the sidecar it is asked for as long as it may take to come
// back from a replica that has ended.
func (p *Peers) LookPatiently(ctx context.Context, server *v1alpha1.Server, podUID types.UID) reportapi.Looked {
	// One that comes back last has a round of its own.
	for end := time.Now().Add(reportapi.ReturnTime + reportapi.LookTime/2); ; {
		looked := p.Look(ctx, server, podUID)
		if looked.Replied || looked.Held || time.Now().After(end) || ctx.Err() != nil {
			return looked
		}
	}
}

func (p *Peers) look(ctx context.Context, server *v1alpha1.Server, podUID string) reportapi.Looked {
	addresses, err := p.addresses(ctx)
	if err != nil {
		addresses = nil // this replica can still ask
	}
	word := rand.Text()
	query := url.Values{
		reportapi.NamespaceQuery: {server.Namespace}, reportapi.ServerQuery: {server.Name},
		reportapi.PodQuery: {podUID}, reportapi.WordQuery: {word},
	}
	replies := make(chan reportapi.Looked, len(addresses)+1)
	for _, address := range addresses {
		go func() {
			var looked reportapi.Looked
			if err := p.get(ctx, address, reportapi.LookPath, query, &looked); err != nil {
				looked = reportapi.Looked{}
			}
			replies <- looked
		}()
	}
	go func() { replies <- p.table.await(ctx, server, podUID, word) }()
	held := false
	for range cap(replies) {
		looked := <-replies
		if looked.Replied {
			return looked
		}
		held = held || looked.Held
	}
	return reportapi.Looked{Held: held}
}
