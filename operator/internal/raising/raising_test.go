package raising

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestWorkLetsRaisesGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Raises{}
		took := func(ctx context.Context) time.Duration {
			began := time.Now()
			r.Wait(ctx)
			return time.Since(began)
		}
		if got := took(t.Context()); got != 0 {
			t.Errorf("it waited for %s, though no target is raised", got)
		}
		first, second := r.Begin(), r.Begin()
		time.AfterFunc(100*time.Millisecond, func() { first(); first() })
		time.AfterFunc(200*time.Millisecond, second)
		if got := took(t.Context()); got != 200*time.Millisecond {
			t.Errorf("it waited for %s, want until both are raised", got)
		}
		end := r.Begin()
		if got := took(t.Context()); got != longest {
			t.Errorf("it waited for %s for one that doesn't end, want %s", got, longest)
		}
		if got := took(t.Context()); got != 0 {
			t.Errorf("it waited for another %s for one that doesn't end", got)
		}
		end()
		end = r.Begin()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if got := took(ended); got != 0 {
			t.Errorf("it waited for %s, though it is told to end", got)
		}
		end()
		if got := took(t.Context()); got != 0 {
			t.Errorf("it waited for %s, after all are raised", got)
		}
	})
}

func TestWithoutRaisesNothingWaits(t *testing.T) {
	var r *Raises
	r.Begin()()
	r.Wait(t.Context())
}
