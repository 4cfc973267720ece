package kindwatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cluster stands for the API server: its kinds, by what a watch of them comes to.
type cluster struct {
	mu sync.Mutex
	// refuses has why a kind can't be watched.
	refuses map[schema.GroupVersionKind]error
	// slow are kinds whose list takes for ever.
	slow map[schema.GroupVersionKind]bool
	// begun counts the watches that were tried, and at are those at work.
	begun map[schema.GroupVersionKind]int
	at    map[schema.GroupVersionKind]open
	log   []string
}

type open struct {
	on  events
	end context.CancelCauseFunc
}

// reader has each object that it is asked for.
type reader struct{ client.Reader }

func (reader) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.SetGeneration(7)
	return nil
}

func (c *cluster) watch(ctx context.Context, kind schema.GroupVersionKind, on events) error {
	c.mu.Lock()
	c.begun[kind]++
	err, slow := c.refuses[kind], c.slow[kind]
	watching, end := context.WithCancelCause(ctx)
	defer end(nil)
	if err == nil {
		if _, ok := c.at[kind]; ok {
			err = errors.New("there is a watch of it already")
		}
		c.at[kind] = open{on, end}
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if !slow {
		on.synced(reader{})
	}
	<-watching.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.at, kind)
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(watching)
}

func (c *cluster) refuse(kind schema.GroupVersionKind, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuses[kind] = err
	if watch, ok := c.at[kind]; ok && err != nil {
		watch.end(err)
	}
}

func (c *cluster) watches() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var kinds []string
	for kind := range c.at {
		kinds = append(kinds, kind.Kind)
	}
	slices.Sort(kinds)
	return kinds
}

func (c *cluster) triedA() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun[gvk("A")]
}

// logged counts the lines about a kind that have a word.
func (c *cluster) logged(kind, word string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, line := range c.log {
		if strings.Contains(line, "Kind="+kind) && strings.Contains(line, word) {
			n++
		}
	}
	return n
}

// run runs a test with Kinds of a cluster, in a bubble with a clock of its own.
func run(t *testing.T, test func(t *testing.T, k *Kinds, c *cluster)) {
	t.Helper()
	runWith(t, Options{}, test)
}

// runWith is run with namers.
func runWith(t *testing.T, o Options, test func(t *testing.T, k *Kinds, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{
			refuses: map[schema.GroupVersionKind]error{}, slow: map[schema.GroupVersionKind]bool{},
			begun: map[schema.GroupVersionKind]int{}, at: map[schema.GroupVersionKind]open{},
		}
		log := funcr.New(func(_, args string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.log = append(c.log, args)
		}, funcr.Options{})
		o.Most, o.Usual, o.watch, o.log = 2, []schema.GroupVersionKind{gvk("Usual")}, c.watch, log
		o.Grant = func(schema.GroupVersionKind) string { return "the component" }
		k := newKinds(o)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := k.Start(ctx); err != nil {
				t.Errorf("run: %v", err)
			}
		}()
		test(t, k, c)
		stop()
		<-ended
		if left := c.watches(); len(left) > 0 {
			t.Errorf("watches of %v outlast the end", left)
		}
	})
}

// later lets time pass, and waits until all is at rest.
func later(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func key(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "games", Name: fmt.Sprint(i)}
}

func watched(t *testing.T, k *Kinds, kind string) bool {
	t.Helper()
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk(kind))
	is, err := k.Get(t.Context(), key(0), o)
	if err != nil || is != (o.Generation == 7) {
		t.Fatalf("it gets generation %d, watched %t: %v", o.Generation, is, err)
	}
	return is
}

func wantWatches(t *testing.T, c *cluster, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := c.watches(); !slices.Equal(got, want) {
		t.Fatalf("watched are %v, want %v", got, want)
	}
}

func TestAKindHasOneWatchWhileItIsNamed(t *testing.T) {
	run(t, func(t *testing.T, k *Kinds, c *cluster) {
		wantWatches(t, c)
		for i := range 50 {
			k.Name(key(i), gvk("A"))
			k.Name(key(i), gvk("A"))
		}
		wantWatches(t, c, "A")
		if !watched(t, k, "A") || c.triedA() != 1 {
			t.Errorf("watched %t, by %d watches", watched(t, k, "A"), c.triedA())
		}
		for i := range 49 {
			k.Forget(key(i))
		}
		later(time.Hour)
		wantWatches(t, c, "A")

		// A tool makes the last one anew.
		k.Forget(key(49))
		k.Forget(key(49))
		later(grace - time.Second)
		wantWatches(t, c, "A")
		k.Name(key(49), gvk("A"))
		later(time.Hour)
		wantWatches(t, c, "A")
		if c.triedA() != 1 {
			t.Errorf("it was watched %d times, want once", c.triedA())
		}

		// It names another kind.
		k.Name(key(49), gvk("B"))
		later(grace)
		wantWatches(t, c, "B")
		if watched(t, k, "A") || k.Count()[Watched] != 1 {
			t.Errorf("what is watched no more can be read; %v", k.Count())
		}
		k.Name(key(1), gvk("A"))
		wantWatches(t, c, "A", "B")
	})
}

func TestNobodyWaitsForAWatch(t *testing.T) {
	run(t, func(t *testing.T, k *Kinds, c *cluster) {
		c.slow[gvk("A")], c.slow[gvk("Usual")] = true, true
		k.Name(key(0), gvk("A"))
		k.Name(key(1), gvk("Usual"))
		later(time.Minute)
		if watched(t, k, "A") || watched(t, k, "Usual") || k.settled() || c.triedA() != 1 {
			t.Errorf("watched %t, settled %t, %d watches", watched(t, k, "A"), k.settled(), c.triedA())
		}
		c.at[gvk("Usual")].on.synced(reader{})
		if !watched(t, k, "Usual") || !k.settled() {
			t.Error("it isn't watched though all is listed")
		}
	})
}

func TestAKindThatIsntThereIsTriedAgain(t *testing.T) {
	run(t, func(t *testing.T, k *Kinds, c *cluster) {
		c.refuse(gvk("A"), &meta.NoKindMatchError{GroupKind: gvk("A").GroupKind()})
		k.Name(key(0), gvk("A"))
		later(time.Hour)
		if watched(t, k, "A") || !meta.IsNoMatchError(k.Problem(gvk("A"))) || k.Count()[Unknown] != 1 {
			t.Errorf("watched %t, %v, the problem is %v", watched(t, k, "A"), k.Count(), k.Problem(gvk("A")))
		}
		if n := c.triedA(); n < 100 || n > 125 {
			t.Errorf("it was tried %d times in an hour", n)
		}
		c.refuse(gvk("A"), nil)
		later(lastRetry)
		if !watched(t, k, "A") || k.Problem(gvk("A")) != nil {
			t.Errorf("it isn't watched though it is there: %v", k.Problem(gvk("A")))
		}

		// Its CRD is deleted, and made again.
		c.refuse(gvk("A"), apierrors.NewNotFound(schema.GroupResource{Resource: "as"}, ""))
		synctest.Wait()
		if watched(t, k, "A") || k.Count()[Unknown] != 1 {
			t.Errorf("it is watched though it is gone: %v", k.Count())
		}
		later(time.Hour)
		c.refuse(gvk("A"), nil)
		later(lastRetry)
		if !watched(t, k, "A") {
			t.Error("it isn't watched though it is there again")
		}
		if n := len(c.log); n > 4 {
			t.Errorf("that made %d lines of log:\n%s", n, strings.Join(c.log, "\n"))
		}
	})
}

func TestAKindThatMayNotBeWatchedIsToldOnce(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "as"}, "", errors.New("no"))
	run(t, func(t *testing.T, k *Kinds, c *cluster) {
		c.refuse(gvk("A"), fmt.Errorf("watch: %w", forbidden))
		k.Name(key(0), gvk("A"))
		later(time.Hour)
		if watched(t, k, "A") || k.Count()[Forbidden] != 1 || c.logged("A", "the component") != 1 || len(c.log) != 1 {
			t.Errorf("watched %t, %v, logged:\n%s", watched(t, k, "A"), k.Count(), strings.Join(c.log, "\n"))
		}
		// Its list is allowed now, and its watch isn't.
		c.refuse(gvk("A"), nil)
		for range 100 {
			later(lastRetry)
			c.mu.Lock()
			watch, ok := c.at[gvk("A")]
			c.mu.Unlock()
			if !ok {
				t.Fatal("it isn't tried any more")
			}
			watch.end(forbidden)
			synctest.Wait()
		}
		if len(c.log) != 1 {
			t.Errorf("logged:\n%s", strings.Join(c.log, "\n"))
		}
		// It is granted, and for good.
		later(time.Hour)
		if !watched(t, k, "A") {
			t.Error("it isn't watched though it may be")
		}
		c.refuse(gvk("A"), forbidden)
		later(time.Minute)
		if c.logged("A", "the component") != 2 {
			t.Errorf("that the right is gone again isn't logged:\n%s", strings.Join(c.log, "\n"))
		}
	})
}

func TestTooManyKindsAreNotWatched(t *testing.T) {
	run(t, func(t *testing.T, k *Kinds, c *cluster) {
		for i, kind := range []string{"A", "B"} {
			k.Name(key(i), gvk(kind))
		}
		wantWatches(t, c, "A", "B")
		for i, kind := range []string{"C", "D", "Usual"} {
			k.Name(key(10+i), gvk(kind))
		}
		later(time.Hour)
		wantWatches(t, c, "A", "B", "Usual")
		if watched(t, k, "C") || k.Count()[Excess] != 2 || c.logged("C", "too many") != 1 {
			t.Errorf("%v, logged:\n%s", k.Count(), strings.Join(c.log, "\n"))
		}
		k.Forget(key(0))
		later(grace)
		wantWatches(t, c, "B", "C", "Usual")

		// One that can't be watched takes no room.
		c.refuse(gvk("B"), &meta.NoKindMatchError{GroupKind: gvk("B").GroupKind()})
		later(time.Second)
		wantWatches(t, c, "C", "D", "Usual")
	})
}

func TestChangesAreTold(t *testing.T) {
	run(t, func(t *testing.T, k *Kinds, c *cluster) {
		var handled []string
		s := &Source{Kinds: k, Handle: func(_ context.Context, c Change, _ Queue) {
			handled = append(handled, fmt.Sprint(c.Kind.Kind, " ", c.Object.GetName(), " ", c.Listed))
		}}
		if err := errors.Join(s.Start(t.Context(), nil), s.WaitForSync(t.Context())); err != nil {
			t.Fatal(err)
		}
		k.Name(key(0), gvk("A"))
		synctest.Wait()
		on := c.at[gvk("A")].on
		for _, listed := range []bool{true, false} {
			on.changed(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "lobby"}}, listed)
		}
		if want := []string{"A lobby true", "A lobby false"}; !slices.Equal(handled, want) {
			t.Errorf("noted were %q, want %q", handled, want)
		}
	})
}

// What was deleted while there was no watch, no watch tells.
func TestWhoNamesAKindIsToldThatItsWatchIsBack(t *testing.T) {
	run(t, func(t *testing.T, k *Kinds, c *cluster) {
		var noted []string
		s := &Source{Kinds: k, Handle: func(_ context.Context, c Change, _ Queue) {
			noted = append(noted, fmt.Sprint(c.Kind.Kind, " ", c.Namer.Name, ": lost ", c.Object == nil, ", listed ", c.Listed))
		}}
		if err := errors.Join(s.Start(t.Context(), nil), s.WaitForSync(t.Context())); err != nil {
			t.Fatal(err)
		}
		k.Name(key(0), gvk("A"))
		k.Name(key(1), gvk("B"))
		wantWatches(t, c, "A", "B")
		if len(noted) > 0 {
			t.Errorf("noted were %q when the watches began, want nothing", noted)
		}
		c.refuse(gvk("A"), apierrors.NewForbidden(schema.GroupResource{Resource: "as"}, "", errors.New("no")))
		later(time.Minute)
		c.refuse(gvk("A"), nil)
		later(lastRetry)
		wantWatches(t, c, "A", "B")
		if want := []string{"A 0: lost true, listed true"}; !slices.Equal(noted, want) {
			t.Errorf("noted were %q, want %q", noted, want)
		}
	})
}

// Anybody may name kinds that nobody has: they take nobody's room, and are no news.
func TestManyKindsThatArentThereTakeNoRoom(t *testing.T) {
	run(t, func(t *testing.T, k *Kinds, c *cluster) {
		for i := range 100 {
			kind := fmt.Sprintf("None%d", i)
			c.refuse(gvk(kind), &meta.NoKindMatchError{GroupKind: gvk(kind).GroupKind()})
			k.Name(key(i), gvk(kind))
		}
		k.Name(key(100), gvk("A"))
		later(time.Hour)
		wantWatches(t, c, "A")
		if k.Count()[Unknown] != 100 || c.logged("None", "") != 0 {
			t.Errorf("%v, logged:\n%s", k.Count(), strings.Join(c.log, "\n"))
		}
	})
}
