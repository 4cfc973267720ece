package kit

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func requestOf(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// startedBacklog is a Backlog with a queue that has no workers.
func startedBacklog(t *testing.T, most int) (*Backlog, queue) {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	b := NewBacklog(most)
	if err := b.Source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	return b, q
}

// pass makes the queue's next pass.
func pass(b *Backlog, q queue) string {
	r, _ := q.Get()
	defer q.Done(r)
	defer b.Begin(r)()
	return r.Name
}

// However many passes nobody waits for, one that somebody waits for comes after a few of them.
func TestAPassGetsPastABacklog(t *testing.T) {
	t.Parallel()
	b, q := startedBacklog(t, 4)
	for i := range 10000 {
		b.Add(requestOf(fmt.Sprintf("asleep-%d", i)))
	}
	for range 100 {
		pass(b, q)
	}
	q.Add(requestOf("woken"))
	before := 0
	for pass(b, q) != "woken" {
		before++
	}
	if before > 4 {
		t.Errorf("the pass came after %d others, want 4 at most", before)
	}
}

// Each that was added gets one pass, in turn, unless it had one for another reason.
func TestEachOfABacklogHasOnePass(t *testing.T) {
	t.Parallel()
	b, q := startedBacklog(t, 2)
	b.Add(requestOf("a"), requestOf("b"), requestOf("c"), requestOf("d"), requestOf("c"))
	q.Add(requestOf("d"))
	var passes []string
	for q.Len() > 0 {
		passes = append(passes, pass(b, q))
	}
	if want := []string{"a", "b", "d", "c"}; !slices.Equal(passes, want) {
		t.Errorf("passes of %q, want %q", passes, want)
	}
	// One that was added while it had a pass needs another one.
	b.Add(requestOf("a"))
	r, _ := q.Get()
	end := b.Begin(r)
	b.Add(requestOf("a"))
	end()
	q.Done(r)
	if q.Len() != 1 || pass(b, q) != "a" || q.Len() != 0 {
		t.Error("an object that was added during its pass doesn't have one more")
	}
}

// What is to come counts until its pass has ended, and one that had its pass for another reason no more.
func TestTheLengthOfABacklogIsThatOfPassesToEnd(t *testing.T) {
	t.Parallel()
	b, q := startedBacklog(t, 2)
	b.Add(requestOf("a"), requestOf("b"), requestOf("c"), requestOf("d"))
	want := func(when string, n int) {
		t.Helper()
		if got := b.Len(); got != n {
			t.Errorf("%s its length is %d, want %d", when, got, n)
		}
	}
	want("at first", 4)
	r, _ := q.Get()
	end := b.Begin(r)
	want("during a pass", 4)
	end()
	q.Done(r)
	want("after a pass", 3)
	b.Begin(requestOf("d"))()
	want("after a pass for another reason", 2)
	for q.Len() > 0 {
		pass(b, q)
	}
	want("in the end", 0)
}

// Those that come are those whose passes are under way and then those whose turn is next, without those that had
// their pass.
func TestABacklogKnowsWhatComesNext(t *testing.T) {
	t.Parallel()
	b, q := startedBacklog(t, 1)
	b.Add(requestOf("a"), requestOf("b"), requestOf("c"), requestOf("d"), requestOf("e"))
	b.Begin(requestOf("c"))()
	want := func(most int, names ...string) {
		t.Helper()
		var got []string
		for _, r := range b.Coming(most) {
			got = append(got, r.Name)
		}
		if !slices.Equal(got, names) {
			t.Errorf("%q come, want %q", got, names)
		}
	}
	want(3, "a", "b", "d")
	want(10, "a", "b", "d", "e")
	pass(b, q)
	want(2, "b", "d")
	for q.Len() > 0 {
		pass(b, q)
	}
	want(2)
}

// What is added before the controller starts waits for it.
func TestABacklogWaitsForItsController(t *testing.T) {
	t.Parallel()
	b := NewBacklog(1)
	b.Add(requestOf("a"))
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	if err := b.Source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if q.Len() != 1 {
		t.Errorf("%d objects are in the queue, want 1", q.Len())
	}
}

// workers are a controller's 16, whose passes take 20 ms each, until the queue is shut down. They
// send the names of those that have begun.
func workers(b *Backlog, q queue, began chan<- string) *sync.WaitGroup {
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for {
				r, down := q.Get()
				if down {
					return
				}
				end := b.Begin(r)
				began <- r.Name
				<-time.After(20 * time.Millisecond)
				end()
				q.Done(r)
			}
		})
	}
	return &all
}

// While 10,000 services have passes of 20 ms each, the pass of one that wakes begins at once.
func TestAWakesPassBeginsAtOnceDuringABacklog(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		add         func(*Backlog, queue, reconcile.Request)
		least, most time.Duration
	}{
		"with a Backlog":    {func(b *Backlog, _ queue, r reconcile.Request) { b.Add(r) }, 0, 0},
		"with a queue only": {func(_ *Backlog, q queue, r reconcile.Request) { q.Add(r) }, 10 * time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, q := startedBacklog(t, 8)
				began := make(chan string, 20000)
				for i := range 10000 {
					c.add(b, q, requestOf(fmt.Sprintf("asleep-%d", i)))
				}
				all := workers(b, q, began)
				<-time.After(time.Second)
				asked := time.Now()
				q.Add(requestOf("woken"))
				for <-began != "woken" {
				}
				if took := time.Since(asked); took < c.least || took > c.most {
					t.Errorf("the pass began after %s, want from %s to %s", took, c.least, c.most)
				}
				q.ShutDown()
				all.Wait()
			})
		})
	}
}
