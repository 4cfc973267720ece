package raising

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestWorkLetsRaisesGoFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New()
		took := func(ctx context.Context, w Work) time.Duration {
			began := time.Now()
			r.Wait(ctx, w)
			return time.Since(began)
		}
		if got := took(t.Context(), Patient); got != 0 {
			t.Errorf("it waited for %s, though no target is raised", got)
		}
		first, second := begin(t, r, "games"), begin(t, r, "games")
		time.AfterFunc(100*time.Millisecond, func() { first(); first() })
		time.AfterFunc(200*time.Millisecond, second)
		if got := took(t.Context(), Prompt); got != 200*time.Millisecond {
			t.Errorf("it waited for %s, want until both are raised", got)
		}
		end := begin(t, r, "games")
		if got := took(t.Context(), Patient); got != longest {
			t.Errorf("it waited for %s for one that doesn't end, want %s", got, longest)
		}
		if got := took(t.Context(), Patient); got != 0 {
			t.Errorf("it waited for another %s for one that doesn't end", got)
		}
		end()
		end = begin(t, r, "games")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if got := took(ended, Patient); got != 0 {
			t.Errorf("it waited for %s, though it is told to end", got)
		}
		end()
		if got := took(t.Context(), Patient); got != 0 {
			t.Errorf("it waited for %s, after all are raised", got)
		}
	})
}

// raiseOn has raises go on without a gap until the end of the test, each for a moment.
func raiseOn(t *testing.T, r *Raises) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	end := begin(t, r, "others")
	go func() {
		defer close(ended)
		defer func() { end() }()
		for ctx.Err() == nil {
			<-time.After(10 * time.Millisecond)
			last := end
			if next, err := r.Begin(context.WithoutCancel(ctx), "others"); err == nil {
				end = next
			}
			last()
		}
	}()
}

// A storm has an end. What goes on for longer holds nothing up for longer than ever.
func TestRaisesWithoutEndHoldWorkUpForABound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New()
		raiseOn(t, r)
		for _, c := range []struct {
			work Work
			want time.Duration
		}{{Prompt, longest}, {Patient, storm - longest}, {Patient, longest}, {Prompt, longest}} {
			began := time.Now()
			r.Wait(t.Context(), c.work)
			if took := time.Since(began); took != c.want {
				t.Errorf("work of kind %d waited for %s, want %s", c.work, took, c.want)
			}
		}
	})
}

// comes asks for an object's pass until it may go on, and tells how often and for how long that was.
func comes(p *Passes, w Work) (asked int, took time.Duration) {
	began := time.Now()
	for {
		again := p.Again(types.NamespacedName{Name: "lobby"}, func() Work { return w })
		if asked++; again == 0 {
			return asked, time.Since(began)
		}
		<-time.After(again)
	}
}

// A pass asks a few times, blocks nobody, and waits no longer than what blocks would.
func TestAPassComesAgainUntilTheStormIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &Passes{Raises: New()}
		if asked, took := comes(p, Patient); asked != 1 || took != 0 {
			t.Errorf("without raises it came %d times within %s", asked, took)
		}
		end := begin(t, p.Raises, "games")
		time.AfterFunc(5*time.Millisecond, end)
		if _, took := comes(p, Patient); took != comeAgain {
			t.Errorf("it went on after %s, want %s: one raise is over then", took, comeAgain)
		}
		raiseOn(t, p.Raises)
		if asked, took := comes(p, Urgent); asked != 1 || took != 0 {
			t.Errorf("urgent work asks %d times and goes on after %s, want once and at once", asked, took)
		}
		if asked, took := comes(p, Prompt); took != longest || asked > 7 {
			t.Errorf("a prompt one came %d times within %s, want 7 at most within %s", asked, took, longest)
		}
		if asked, took := comes(p, Patient); took != storm-longest || asked > 10 {
			t.Errorf("a patient one came %d times within %s, want 10 at most within %s", asked, took, storm-longest)
		}
		if len(p.since) != 0 {
			t.Errorf("%d passes are remembered, though all went on", len(p.since))
		}
	})
}

// A pass that is put off isn't one that went well: the next failure waits longer than the one before.
func TestAPassThatIsPutOffForgetsNoFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &Passes{Raises: New()}
		limiter, request := p.Limiter(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "games", Name: "lobby"}}
		for range 3 {
			limiter.When(request)
		}
		end := begin(t, p.Raises, "others")
		if again := p.Again(request.NamespacedName, func() Work { return Prompt }); again == 0 {
			t.Fatal("the pass isn't put off")
		}
		limiter.Forget(request)
		if n := limiter.NumRequeues(request); n != 3 {
			t.Errorf("%d failures are remembered, want 3", n)
		}
		end()
		if again := p.Again(request.NamespacedName, func() Work { return Prompt }); again != 0 {
			t.Errorf("the pass comes again after %s though no raise is under way", again)
		}
		limiter.Forget(request)
		if n := limiter.NumRequeues(request); n != 0 {
			t.Errorf("after a pass that went well %d failures are remembered", n)
		}
	})
}
