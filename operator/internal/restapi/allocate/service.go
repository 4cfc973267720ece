package allocate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/refusal"
)

const (
	// answerTime is how long the operator may take to answer beyond what the caller waits: a leader
	// that is gone is replaced within 15 seconds, which is longer than a caller should hang.
	answerTime = 5 * time.Second
	// makeTime bounds how long the API server may take to make an Allocation; its client may have less patience.
	makeTime = time.Minute
	// leaveTime bounds what is done once the caller is gone: an API server with much to do takes its time. For
	// lateTime of that an Allocation is looked for of which nobody has said whether it is made.
	leaveTime, lateTime = time.Minute, 10 * time.Second
	// tries bounds how often a call begins anew because an Allocation of its name went.
	tries = 5
	// maxCalls bounds how many calls an Allocation names. With so many it stays until it is released.
	maxCalls = 16
)

// Service allocates and releases. Its methods may be called by any goroutine.
type Service struct {
	client  client.Client
	live    client.Reader
	waiters *waiters
	now     func() time.Time
}

// New makes a Service. The informers are those of a cache that has Allocations, c writes, and live reads
// from the API server.
func New(ctx context.Context, informers cache.Informers, c client.Client, live client.Reader) (*Service, error) {
	s := &Service{client: c, live: live, now: time.Now, waiters: &waiters{all: map[types.NamespacedName]map[*waiter]struct{}{}}}
	informer, err := informers.GetInformer(ctx, &v1alpha1.Allocation{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch Allocations: %w", err)
	}
	if _, err := informer.AddEventHandler(s.waiters); err != nil {
		return nil, fmt.Errorf("watch Allocations: %w", err)
	}
	return s, nil
}

// call is one call of Allocate.
type call struct {
	*Service
	request  *Request
	key      types.NamespacedName
	session  string
	id       string
	deadline time.Time
	waiter   *waiter
	// unmarked is set where the Allocation names so many calls that it doesn't name this one.
	unmarked bool
	// unsure is set where the API server hasn't said whether it has made the Allocation: it still may.
	unsure bool
}

// Allocate gives the caller a Server, or places on one. It waits as long as the request says, and no
// longer than ctx: with an error nothing is left allocated for the caller, unless the session had it
// before.
func (s *Service) Allocate(ctx context.Context, namespace string, r Request) (Result, error) {
	if err := r.check(); err != nil {
		return Result{}, err
	}
	session := r.Session
	if session == "" {
		session = rand.Text()
	}
	c := &call{
		Service: s, request: &r, session: session, id: wellknown.AllocationCallPrefix + rand.Text(), deadline: s.now().Add(r.Wait),
		key: types.NamespacedName{Namespace: namespace, Name: NameOf(session)},
	}
	var end func()
	c.waiter, end = s.waiters.begin(c.key)
	defer end()
	for range tries {
		o, existed, err := c.join(ctx)
		if errors.Is(err, errAgain) {
			continue
		}
		if err != nil {
			if ctx.Err() != nil || !errors.Is(err, ErrConflict) && !refusal.Is(err) {
				c.leave(ctx) // what was made may have been made all the same
			}
			return Result{}, err
		}
		o, err = c.await(ctx, o)
		if errors.Is(err, errAgain) {
			continue
		}
		if err != nil {
			return Result{}, err
		}
		return result(session, o, existed), nil
	}
	return Result{}, &Refused{Reason: NoAnswer, Message: "The session's Allocations come and go: it is used by others.", RetryAfter: time.Second}
}

// NameOf is the name of a session's Allocation.
func NameOf(session string) string {
	sum := sha256.Sum256([]byte(session))
	return "s-" + hex.EncodeToString(sum[:20])
}

// errAgain means that there was an Allocation that is over, and is gone now.
var errAgain = errors.New("begin anew")

// join makes the session's Allocation, or takes part in the one that there is.
func (c *call) join(ctx context.Context) (o *v1alpha1.Allocation, existed bool, err error) {
	o = &v1alpha1.Allocation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.key.Namespace, Name: c.key.Name,
			Annotations: map[string]string{c.id: "", wellknown.SessionAnnotation: strings.ToValidUTF8(c.session, "?")},
		},
		Spec: c.request.spec(max(0, c.deadline.Sub(c.now()))),
	}
	// A caller that goes away doesn't end this: the API server may make what nobody waits for any more, after
	// the call has looked for what it has to undo.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), makeTime)
	err = c.client.Create(making, o)
	cancel()
	c.unsure = err != nil && mayBeDone(err)
	switch {
	case err == nil:
		return o, false, nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return nil, false, fmt.Errorf("%w: %s", ErrInvalid, words(err))
	case apierrors.IsNotFound(err):
		return nil, false, fmt.Errorf("%w: there is no namespace %s", ErrInvalid, c.key.Namespace)
	case !apierrors.IsAlreadyExists(err):
		return nil, false, fmt.Errorf("create Allocation %s: %w", c.key, err)
	}
	have := &v1alpha1.Allocation{}
	if err := c.live.Get(ctx, c.key, have); err != nil {
		return nil, false, again(err, "read Allocation %s", c.key)
	}
	if over(have) {
		return nil, false, c.discard(ctx, have)
	}
	if !c.same(have) {
		return nil, false, fmt.Errorf("session %.64q has asked for something else: %w", c.session, ErrConflict)
	}
	existed = have.Status.State == v1alpha1.AllocationAllocated
	if len(callsOf(have)) >= maxCalls {
		c.unmarked = true
		return have, existed, nil
	}
	if err := c.mark(ctx, have, ""); err != nil {
		return nil, false, again(err, "take part in Allocation %s", c.key)
	}
	return have, existed, nil
}

// mayBeDone reports whether the API server may have done, or may still do, what it answered with an error.
func mayBeDone(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}

// mark notes the call on an Allocation; with nil it takes that away, if the Allocation hasn't changed.
func (c *call) mark(ctx context.Context, o *v1alpha1.Allocation, value any) error {
	metadata := map[string]any{"uid": o.UID, "annotations": map[string]any{c.id: value}}
	if value == nil {
		metadata["resourceVersion"] = o.ResourceVersion
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode the annotation: %w", err)
	}
	return c.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, body))
}

// again is errAgain where an Allocation has gone since.
func again(err error, format string, args ...any) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return errAgain
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// same reports whether an Allocation is of the same request. How long the callers wait may differ.
func (c *call) same(o *v1alpha1.Allocation) bool {
	want := c.request.spec(0)
	have := *o.Spec.DeepCopy()
	have.Wait, have.TTL, want.Wait, want.TTL = nil, nil, nil, nil
	return equality.Semantic.DeepEqual(have, want)
}

func over(o *v1alpha1.Allocation) bool {
	return o.Status.State == v1alpha1.AllocationRefused || o.Status.State == v1alpha1.AllocationExpired
}

// discard deletes an Allocation that is over.
func (c *call) discard(ctx context.Context, o *v1alpha1.Allocation) error {
	if err := c.client.Delete(ctx, o, client.Preconditions{UID: &o.UID}); client.IgnoreNotFound(err) != nil {
		return again(err, "delete Allocation %s", c.key)
	}
	return errAgain
}

// await waits for the answer.
func (c *call) await(ctx context.Context, o *v1alpha1.Allocation) (*v1alpha1.Allocation, error) {
	unanswered := time.NewTimer(max(0, c.deadline.Sub(c.now())) + answerTime)
	defer unanswered.Stop()
	for {
		latest, deleted := c.waiter.latest(o)
		switch {
		case ctx.Err() != nil:
			c.leave(ctx)
			return nil, fmt.Errorf("wait for Allocation %s: %w", c.key, ctx.Err())
		case deleted:
			return nil, &Refused{Reason: Released, Message: "The session was released.", RetryAfter: time.Second}
		case latest.Status.State == v1alpha1.AllocationAllocated:
			return latest, nil
		case over(latest):
			return nil, c.refused(ctx, latest)
		}
		select {
		case <-ctx.Done():
		case <-c.waiter.news:
		case <-unanswered.C:
			c.leave(ctx)
			if latest.Status.State == v1alpha1.AllocationPending {
				return nil, &Refused{Reason: reasons.WaitOver, Message: "No Server was free in time.", RetryAfter: time.Second}
			}
			return nil, &Refused{Reason: NoAnswer, Message: "The operator hasn't answered in time.", RetryAfter: answerTime}
		}
	}
}

// refused deletes an Allocation that was refused, and says why it was. Where the call took part in that
// of an earlier one, and has time left, it begins anew.
func (c *call) refused(ctx context.Context, o *v1alpha1.Allocation) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	if err := c.discard(ctx, o); !errors.Is(err, errAgain) {
		return err
	}
	cond := meta.FindStatusCondition(o.Status.Conditions, conditions.Allocated)
	switch {
	case o.Status.State == v1alpha1.AllocationExpired:
		return errAgain
	case cond == nil:
		return &Refused{Reason: reasons.NoServerFree, Message: "No Server is free.", RetryAfter: time.Second}
	case (cond.Reason == reasons.WaitOver || cond.Reason == reasons.NoServerFree) && c.deadline.Sub(c.now()) > time.Second:
		return errAgain // the call before had less time
	}
	r := &Refused{Reason: cond.Reason, Message: cond.Message, RetryAfter: time.Second}
	if cond.Reason == reasons.TooManyWait {
		r.RetryAfter = 10 * time.Second
	}
	return r
}

// leave undoes what the call has done, because its caller hears no more of it. It goes on though the
// caller is gone.
func (c *call) leave(ctx context.Context) {
	if c.unmarked {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	late := c.now().Add(lateTime)
	for ctx.Err() == nil {
		o := &v1alpha1.Allocation{}
		err := c.live.Get(ctx, c.key, o)
		calls := callsOf(o)
		switch {
		case apierrors.IsNotFound(err) && (!c.unsure || c.now().After(late)):
			return
		case err == nil && !calls[c.id]:
			return // it is another's
		case err == nil:
			c.unsure = false
		}
		if err == nil && len(calls) > 1 {
			err = c.mark(ctx, o, nil)
		} else if err == nil {
			err = c.client.Delete(ctx, o, client.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion})
		}
		if err == nil || apierrors.IsNotFound(err) && !c.unsure {
			return
		}
		if !apierrors.IsConflict(err) {
			// The API server is away, has too much to do, or may be about to make the Allocation.
			select {
			case <-ctx.Done():
			case <-time.After(retryTime):
			}
		}
	}
}

// retryTime is after how long a call that leaves asks an API server again that has failed.
const retryTime = 200 * time.Millisecond

// callsOf are the calls that an Allocation names.
func callsOf(o *v1alpha1.Allocation) map[string]bool {
	calls := map[string]bool{}
	for name := range maps.Keys(o.Annotations) {
		if strings.HasPrefix(name, wellknown.AllocationCallPrefix) {
			calls[name] = true
		}
	}
	return calls
}

// Release lets go of what a session has. It is no more wanted by anybody: calls of the session that wait
// are refused.
func (s *Service) Release(ctx context.Context, namespace, session string) error {
	o := &v1alpha1.Allocation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: NameOf(session)}}
	err := s.client.Delete(ctx, o)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("session %.64q: %w", session, ErrUnknownSession)
	}
	if err != nil {
		return fmt.Errorf("delete Allocation %s/%s: %w", namespace, o.Name, err)
	}
	return nil
}

// words are an API server's, without what the caller can't know: that there is an Allocation.
func words(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if d := status.Status().Details; d != nil && len(d.Causes) > 0 {
			all := make([]string, 0, len(d.Causes))
			for _, cause := range d.Causes {
				all = append(all, strings.TrimPrefix(cause.Field+": "+cause.Message, ": "))
			}
			return strings.Join(all, "; ")
		}
	}
	return err.Error()
}
