package allocation_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/restapi/allocate"
	"dormouse.dev/dormouse/test/api/fixture"
)

func session(i int) string { return fmt.Sprint("match-", i) }

func TestAHundredAskForSixty(t *testing.T) {
	w := newWorld(t)
	w.serversOf(60, 0)
	leader, other := w.replica(true), w.replica(false)
	w.seen(leader, 60)
	replicas := []*replica{leader, other}
	for round := range 2 {
		outcomes := w.all(100, func(i int) (allocate.Result, error) {
			return replicas[i%2].Allocate(t.Context(), w.Namespace, allocate.Request{Session: session(i), Target: game})
		})
		given, servers, refused := w.count(outcomes)
		if given != 60 || len(servers) != 60 || refused != 40 {
			t.Fatalf("round %d: %d got %d Servers and %d were refused, want 60, 60 and 40", round, given, len(servers), refused)
		}
		if n := len(w.allocations(t.Context())); n != 60 {
			t.Errorf("round %d: %d Allocations are there, want 60", round, n)
		}
		for i, o := range outcomes {
			if o.err != nil {
				continue
			}
			if o.Address == "" || len(o.Ports) != 1 || o.Existed {
				t.Errorf("what %s got is %+v", session(i), o.Result)
			}
			// The same again, at the other replica.
			same, err := replicas[(i+1)%2].Allocate(t.Context(), w.Namespace, allocate.Request{Session: session(i), Target: game})
			if err != nil || same.Server != o.Server || !same.Existed {
				t.Errorf("%s got %s and then %+v, %v", session(i), o.Server, same, err)
			}
			if err := other.Release(t.Context(), w.Namespace, session(i)); err != nil {
				t.Error(err)
			}
		}
		w.seen(leader, 60)
	}
	if err := other.Release(t.Context(), w.Namespace, session(0)); !errors.Is(err, allocate.ErrUnknownSession) {
		t.Errorf("a session is released twice: %v", err)
	}
}

func TestThoseWhoWaitForASleepingGameAreServedAsItComesUp(t *testing.T) {
	const servers, capacity, callers, leave = 20, 5, 100, 10
	w := newWorld(t)
	w.phase(v1alpha1.PhaseAsleep)
	leader := w.replica(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan []outcome)
	go func() {
		done <- w.all(callers, func(i int) (allocate.Result, error) {
			ask := allocate.Request{Session: session(i), Target: game, Players: 1, Wait: 2 * time.Minute}
			if i%(callers/leave) == 0 {
				return leader.Allocate(ctx, w.Namespace, ask)
			}
			return leader.Allocate(context.WithoutCancel(ctx), w.Namespace, ask)
		})
	}()
	fixture.Eventually(t, promptly, "all wait", func(ctx context.Context) error {
		return fixture.WantEqual("Allocations", len(w.allocations(ctx)), callers)
	})
	<-w.wakes.first
	w.phase(v1alpha1.PhaseWaking)
	for i := range servers {
		w.server(fmt.Sprint("duel-", i), capacity)
		if i == servers/4 {
			cancel() // and some of those have a place already
		}
	}
	w.phase(v1alpha1.PhaseAwake)
	given, on, refused := w.count(<-done)
	if refused > 0 || given < callers-leave {
		t.Errorf("%d got a place and %d were refused, want %d at least, and none", given, refused, callers-leave)
	}
	for name, n := range on {
		if n > capacity {
			t.Errorf("%d have a place on %s, which has %d", n, name, capacity)
		}
	}
	if n := len(w.allocations(t.Context())); n != given {
		t.Errorf("%d Allocations are there, want %d: nobody knows of the others", n, given)
	}
}

func TestANewLeaderGivesNothingTwice(t *testing.T) {
	w := newWorld(t)
	w.serversOf(40, 0)
	leader, api := w.replica(true), w.replica(false)
	w.seen(leader, 40)
	var given atomic.Int32
	half := make(chan struct{})
	done := make(chan []outcome)
	go func() {
		done <- w.all(60, func(i int) (allocate.Result, error) {
			if i >= 20 {
				select { // the first are answered by the first leader
				case <-half:
				case <-t.Context().Done():
				}
			}
			r, err := api.Allocate(t.Context(), w.Namespace, allocate.Request{Session: session(i), Target: game, Wait: time.Minute})
			if given.Add(1) == 15 {
				close(half) // and the others come as it ends
			}
			return r, err
		})
	}()
	<-half
	leader.stop()
	next := w.replica(true)
	fixture.Eventually(t, promptly, "20 wait for the new leader", func(context.Context) error {
		return fixture.WantEqual("Servers that are free", next.allocator.Free(w.Namespace, "GameType", game), 0)
	})
	// Those that wait get the Servers of those that are released.
	for i := range 20 {
		fixture.Eventually(t, promptly, "an early one is answered", func(ctx context.Context) error {
			a := &v1alpha1.Allocation{}
			if err := w.Admin.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: allocate.NameOf(session(i))}, a); err != nil {
				return err
			}
			return fixture.WantEqual("state", a.Status.State, v1alpha1.AllocationAllocated)
		})
		if err := api.Release(t.Context(), w.Namespace, session(i)); err != nil {
			t.Error(err)
		}
	}
	all, _, refused := w.count(<-done)
	if all != 60 || refused != 0 {
		t.Errorf("%d got a Server and %d were refused, want 60 and none", all, refused)
	}
	on := map[string]int{}
	for _, a := range w.allocations(t.Context()) {
		on[a.Status.ServerName]++
	}
	if len(on) != 40 {
		t.Errorf("%d Servers are had by 40: %v", len(on), on)
	}
}

func TestAnAllocationEndsWithItsTimeOrItsServer(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"one", "two", "three"} {
		w.server(name, 0)
	}
	w.seen(w.replica(true), 3)
	for _, name := range []string{"timed", "deleted", "lost"} {
		w.make(name)
	}
	timed := w.becomes("timed", v1alpha1.AllocationAllocated, reasons.OK)
	before := timed.DeepCopy()
	timed.Spec.TTL = &metav1.Duration{Duration: time.Hour}
	if err := w.Admin.Patch(t.Context(), timed, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, promptly, "the edit is observed", func(ctx context.Context) error {
		o := &v1alpha1.Allocation{}
		if err := w.Admin.Get(ctx, client.ObjectKeyFromObject(timed), o); err != nil {
			return err
		}
		return errors.Join(
			fixture.WantEqual("state", o.Status.State, v1alpha1.AllocationAllocated),
			fixture.WantEqual("generation", o.Status.ObservedGeneration, timed.Generation),
			fixture.WantEqual("generation of the condition", o.Status.Conditions[0].ObservedGeneration, timed.Generation),
		)
	})
	before = timed.DeepCopy()
	timed.Spec.TTL = &metav1.Duration{Duration: time.Second}
	if err := w.Admin.Patch(t.Context(), timed, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.becomes("timed", v1alpha1.AllocationExpired, reasons.TimeOver)

	server := func(allocation string) *v1alpha1.Server {
		s, a := &v1alpha1.Server{}, w.becomes(allocation, v1alpha1.AllocationAllocated, reasons.OK)
		if err := w.Admin.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: a.Status.ServerName}, s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if err := w.Admin.Delete(t.Context(), server("deleted")); err != nil {
		t.Fatal(err)
	}
	w.becomes("deleted", v1alpha1.AllocationExpired, reasons.ServerGone)
	w.change(server("lost"), func(st *v1alpha1.ServerStatus) { st.Game.PodUID = "another" })
	w.becomes("lost", v1alpha1.AllocationExpired, reasons.ServerGone)

	// Two Servers are free again, and the session of an expired one gets another.
	for _, name := range []string{"again", "and-again"} {
		w.make(name)
		w.becomes(name, v1alpha1.AllocationAllocated, reasons.OK)
	}
	w.make("none")
	w.becomes("none", v1alpha1.AllocationRefused, reasons.NoServerFree)
}

func TestOneThatBreaksOffTakesNothingFromOneThatTriesAgain(t *testing.T) {
	w := newWorld(t)
	leader, other := w.replica(true), w.replica(false)
	ask := allocate.Request{Session: "match", Target: game, Wait: time.Minute}
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan outcome, 1), make(chan outcome, 1)
	go func() {
		r, err := leader.Allocate(ctx, w.Namespace, ask)
		first <- outcome{r, err}
	}()
	calls := func(n int) {
		t.Helper()
		fixture.Eventually(t, promptly, fmt.Sprintf("%d calls take part", n), func(ctx context.Context) error {
			for _, a := range w.allocations(ctx) {
				return fixture.WantEqual("annotations", len(a.Annotations), n+1) // and the session
			}
			return fixture.WantEqual("Allocations", 0, min(n, 1))
		})
	}
	calls(1)
	go func() {
		r, err := other.Allocate(t.Context(), w.Namespace, ask)
		second <- outcome{r, err}
	}()
	calls(2)
	differs := ask
	differs.Players = 2
	if _, err := other.Allocate(t.Context(), w.Namespace, differs); !errors.Is(err, allocate.ErrConflict) {
		t.Errorf("another request of the session is answered with %v", err)
	}
	cancel()
	if o := <-first; !errors.Is(o.err, context.Canceled) {
		t.Errorf("the call that broke off is answered with %+v", o)
	}
	calls(1)
	w.server("one", 0)
	if o := <-second; o.err != nil || o.Server != "one" {
		t.Errorf("the call that tried again is answered with %+v", o)
	}
	// A third one has it, too, and breaks off: it is kept.
	gone, leave := context.WithCancel(t.Context())
	defer leave()
	if r, err := leader.Allocate(gone, w.Namespace, ask); err != nil || r.Server != "one" || !r.Existed {
		t.Errorf("a third call is answered with %+v, %v", r, err)
	}
	leave()
	calls(2)
}

func TestOneThatBreaksOffAloneLeavesNothing(t *testing.T) {
	w := newWorld(t)
	leader := w.replica(true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := leader.Allocate(ctx, w.Namespace, allocate.Request{Target: game, Wait: time.Minute})
		done <- err
	}()
	fixture.Eventually(t, promptly, "it waits", func(ctx context.Context) error {
		return fixture.WantEqual("Allocations", len(w.allocations(ctx)), 1)
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it is answered with %v", err)
	}
	if n := len(w.allocations(t.Context())); n != 0 {
		t.Errorf("%d Allocations are left", n)
	}
}

func TestWithoutALeaderNothingIsLeft(t *testing.T) {
	w := newWorld(t)
	w.server("one", 0)
	_, err := w.replica(false).Allocate(t.Context(), w.Namespace, allocate.Request{Target: game})
	var no *allocate.Refused
	if !errors.As(err, &no) || no.Reason != allocate.NoAnswer {
		t.Errorf("it is answered with %v", err)
	}
	if n := len(w.allocations(t.Context())); n != 0 {
		t.Errorf("%d Allocations are left", n)
	}
}

func TestBadRequestsSayWhatToChange(t *testing.T) {
	w := newWorld(t)
	api := w.replica(false)
	for name, r := range map[string]allocate.Request{
		"nothing":           {},
		"a bad name":        {Target: "Duel"},
		"a bad kind":        {Target: "duel", Kind: "Deployment"},
		"too many players":  {Target: "duel", Players: 10001},
		"a wait of days":    {Target: "duel", Wait: 48 * time.Hour},
		"a ttl of a moment": {Target: "duel", TTL: time.Millisecond},
	} {
		if _, err := api.Allocate(t.Context(), w.Namespace, r); !errors.Is(err, allocate.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhoMayOnlyReadGetsNoServer(t *testing.T) {
	w := newWorld(t)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "dormouse-view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "reader"}},
	}
	if err := w.Admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	as := rest.CopyConfig(fixture.Config(t))
	as.Impersonate = rest.ImpersonationConfig{UserName: "reader"}
	scheme, err := fixture.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	reader, err := client.New(as, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, promptly, "it may read", func(ctx context.Context) error {
		return reader.List(ctx, &v1alpha1.AllocationList{}, client.InNamespace(w.Namespace))
	})
	a := &v1alpha1.Allocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "a"},
		Spec:       v1alpha1.AllocationSpec{TargetRef: &v1alpha1.AllocationTarget{Name: game}},
	}
	if err := reader.Create(t.Context(), a); !apierrors.IsForbidden(err) {
		t.Errorf("who may only read makes an Allocation: %v", err)
	}
	w.make("b")
	a.Name = "b"
	if err := reader.Delete(t.Context(), a); !apierrors.IsForbidden(err) {
		t.Errorf("who may only read deletes an Allocation: %v", err)
	}
}
