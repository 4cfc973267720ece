package recent

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestManyWhoAskTheSameCauseOneQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := Answers[string, int]{Keep: time.Minute}
		var asked, atOnce atomic.Int32
		ask := func(context.Context) (int, error) {
			if atOnce.Add(1) > 1 {
				t.Error("two questions of a key at once")
			}
			defer atOnce.Add(-1)
			<-time.After(time.Second) // by the test's own clock
			return int(asked.Add(1)), nil
		}
		began := time.Now()
		var wait sync.WaitGroup
		for range 100 {
			wait.Go(func() {
				if n, err := a.Get(t.Context(), "a", began, ask); n != 1 || err != nil {
					t.Errorf("got %d, %v", n, err)
				}
			})
		}
		wait.Wait()
		// An answer is good for who takes one of its age, and no other.
		if n, _ := a.Get(t.Context(), "a", began, ask); n != 1 {
			t.Errorf("got answer %d", n)
		}
		if n, _ := a.Get(t.Context(), "a", began.Add(1), ask); n != 2 {
			t.Errorf("got answer %d where the first is too old", n)
		}
		// One that is under way and was begun too early is waited for, and asked again.
		go func() { _, _ = a.Get(t.Context(), "a", time.Now(), ask) }()
		<-time.After(time.Second / 2)
		if n, _ := a.Get(t.Context(), "a", time.Now(), ask); n != 4 {
			t.Errorf("got answer %d where the third was begun too early", n)
		}
	})
}

func TestWhoGivesUpLeavesTheQuestionToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := Answers[string, int]{Keep: time.Minute}
		ask := func(ctx context.Context) (int, error) {
			<-time.After(time.Second) // by the test's own clock
			return 7, ctx.Err()
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := a.Get(ctx, "a", began, ask); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
		if n, err := a.Get(t.Context(), "a", began, ask); n != 7 || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
	})
}

func TestOldAnswersAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := Answers[int, int]{Keep: time.Minute}
		for i := range 1000 {
			_, _ = a.Get(t.Context(), i, time.Time{}, func(context.Context) (int, error) { return i, nil })
			<-time.After(time.Second) // by the test's own clock
		}
		if n := len(a.all); n > 121 {
			t.Errorf("%d are remembered, of which a minute has 60", n)
		}
	})
}
