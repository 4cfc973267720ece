package report

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

func TestChangesAreWrittenTogether(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0")
	began := time.Now()
	for i := range uint64(100) {
		r.say(next(6+i, players(int32(i+1))))
	}
	took := time.Since(began)
	r.eventually("the last is written", func() bool { p := r.read().Status.Players; return p != nil && p.Current == 100 })
	if n, most := int(r.writes.Load()), 2+int(took/time.Second)+1; n > most {
		t.Errorf("100 changes within %s were written %d times, want at most %d", took, n, most)
	}
}

func TestAReportThatChangesNothingWritesNothing(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0")
	for i := range uint64(20) {
		r.say(next(6 + i))
	}
	// The queue is worked off in order: what is written next is the only write.
	r.say(next(30, players(1)))
	r.eventually("the change is written", func() bool { return r.read().Status.Players != nil && r.writes.Load() > 0 })
	if n := r.writes.Load(); n != 1 {
		t.Errorf("%d writes, want only that of the change", n)
	}
}

func TestADenialIsWrittenAtOnce(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0")
	r.say(next(6, players(0)))
	r.eventually("the first change is written", func() bool { return r.writes.Load() == 1 })
	began := time.Now()
	r.say(next(7, players(1), func(r *reportapi.Report) { r.DeletionAllowed = false }))
	r.eventually("the denial is written", func() bool { return !r.read().Status.DeletionAllowed })
	if took := time.Since(began); took > pace*4/5 {
		t.Errorf("it was written after %s, want at once", took)
	}
}

// A replica that was told first and writes last must not undo what another was
// told after that.
func TestAnOlderReportDoesNotReplaceANewerOneOfAnotherReplica(t *testing.T) {
	c := cluster(t)
	one, two := start(t, c, "127.0.0.1:0"), start(t, c, "127.0.0.1:0")
	one.say(next(6, players(1), func(r *reportapi.Report) { r.DeletionAllowed = false }))
	one.eventually("a first write", func() bool { return one.writes.Load() == 1 })
	// The next waits for its second.
	one.say(next(7, players(0)))
	two.say(next(8, players(2), func(r *reportapi.Report) { r.DeletionAllowed = false }))
	two.eventually("the newer is written", func() bool { return two.read().Status.Players.Current == 2 })
	over := time.After(2 * pace)
	for done := false; !done; {
		select {
		case <-over:
			done = true
		case <-time.After(10 * time.Millisecond):
			if s := one.read().Status; s.DeletionAllowed || s.Players.Current != 2 {
				t.Fatalf("the older report was written over the newer: %+v", s)
			}
		}
	}
	if n := one.writes.Load(); n != 1 {
		t.Errorf("%d writes of the first replica, want one", n)
	}
}

// A denial that the status has already must be written still where another
// replica is about to write that the deletion is allowed.
func TestADenialIsWrittenBeforeAnOlderAllowance(t *testing.T) {
	denied := func(r *reportapi.Report) { r.DeletionAllowed = false }
	c := cluster(t)
	away := make(chan struct{})
	var tried atomic.Int32
	one := start(t, c, "127.0.0.1:0", func(r *replica) {
		r.before = func() error {
			tried.Add(1)
			select {
			case <-away:
				return nil
			default:
				return fmt.Errorf("the API server is away")
			}
		}
	})
	two := start(t, c, "127.0.0.1:0")
	two.say(next(6, players(1), denied, func(r *reportapi.Report) { r.ShutdownSeen = true }))
	two.eventually("the first denial is written", func() bool { return two.writes.Load() == 1 })
	one.say(next(7, players(0), func(r *reportapi.Report) { r.ShutdownSeen = true }))
	one.eventually("the allowance is tried", func() bool { return tried.Load() > 0 })
	began := time.Now()
	for sequence := uint64(8); sequence < 12; sequence++ {
		two.say(next(sequence, players(1), denied, func(r *reportapi.Report) { r.ShutdownSeen = true }))
	}
	two.eventually("the denial is written again", func() bool { return two.read().Status.Game.Sequence >= 8 })
	if took := time.Since(began); took > pace*4/5 {
		t.Errorf("it was written after %s, want at once", took)
	}
	close(away)
	one.eventually("the allowance is given up", func() bool {
		_, last := one.table.pending("server-1")
		return last.supersededBy(&one.read().Status) && one.report.writer.queue.NumRequeues("server-1") == 0
	})
	if s := two.read().Status; s.DeletionAllowed || s.Players.Current != 1 {
		t.Errorf("the older report was written over the newer: %+v", s)
	}
	// A write is counted a moment after it can be read.
	two.eventually("its writes are counted", func() bool { return two.writes.Load() >= 2 })
	if n := two.writes.Load(); n != 2 {
		t.Errorf("%d writes of the second replica, want one for each time that the sidecar came to it", n)
	}
}

// The replica whose cache doesn't know of the other's write finds out by it.
func TestAReplicaWithAnOldCacheDoesNotWriteOverANewerReport(t *testing.T) {
	c := cluster(t)
	stale := &v1alpha1.Server{}
	if err := c.Get(t.Context(), lobby1(), stale); err != nil {
		t.Fatal(err)
	}
	var old atomic.Pointer[v1alpha1.Server]
	old.Store(stale)
	one := start(t, c, "127.0.0.1:0", func(r *replica) {
		cached := interceptor.NewClient(r.c, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if s := old.Load(); s != nil && key == lobby1() {
					if into, ok := o.(*v1alpha1.Server); ok {
						s.DeepCopyInto(into)
						return nil
					}
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		r.report.cached, r.report.writer.cached = cached, cached
	})
	two := start(t, c, "127.0.0.1:0")
	two.say(next(8, players(2), func(r *reportapi.Report) { r.DeletionAllowed = false }))
	two.eventually("the newer is written", func() bool { return two.writes.Load() == 1 })
	one.say(next(7, players(1), func(r *reportapi.Report) { r.Game.State = v1alpha1.GameAllocated }))
	one.eventually("the older is tried", func() bool { return one.writes.Load() > 0 })
	old.Store(nil)
	one.eventually("the older is given up", func() bool { return one.report.writer.queue.NumRequeues("server-1") == 0 })
	if s := two.read().Status; s.DeletionAllowed || s.Players.Current != 2 || s.Game.State != v1alpha1.GameReady || s.Game.Sequence != 8 {
		t.Errorf("the older report was written over the newer: %+v", s)
	}
}

func TestAWriteThatFailsIsTriedAgain(t *testing.T) {
	var failures atomic.Int32
	r := start(t, cluster(t), "127.0.0.1:0", func(r *replica) {
		r.before = func() error {
			if failures.Add(1) <= 3 {
				return fmt.Errorf("the API server is away")
			}
			return nil
		}
	})
	r.say(next(6, players(5)))
	r.eventually("the report is written", func() bool { p := r.read().Status.Players; return p != nil && p.Current == 5 })
}

func TestADenialIsWrittenThoughTheMetadataIsRefused(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0", func(r *replica) {
		r.report.writer.client = interceptor.NewClient(r.c, interceptor.Funcs{
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return fmt.Errorf("a webhook refuses the label")
			},
		})
	})
	r.say(next(6, func(r *reportapi.Report) {
		r.DeletionAllowed, r.Game.Labels = false, map[string]string{"agones.dev/sdk-map": "dust"}
	}))
	r.eventually("the denial is written", func() bool { return !r.read().Status.DeletionAllowed })
}
