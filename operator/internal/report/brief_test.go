package report

import (
	"sync"
	"testing"
	"time"
)

func TestWhoComesTogetherSharesATime(t *testing.T) {
	var b brief
	before := time.Now()
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			came := time.Now()
			deadline, ok := b.context().Deadline()
			if !ok || deadline.Before(came.Add(answerTime)) {
				t.Errorf("it ends %s after it was asked for, want %s at least", deadline.Sub(came), answerTime)
			}
			if after := time.Since(before); deadline.After(before.Add(after + answerTime + answerTime/10)) {
				t.Errorf("it ends %s after the first was asked for", deadline.Sub(before))
			}
		})
	}
	group.Wait()
	first := b.context()
	b.until = time.Now().Add(time.Hour)
	if b.context() != first {
		t.Error("who comes together has one each")
	}
	b.until = time.Now()
	if b.context() == first {
		t.Error("it is given out for longer than a tenth of its time")
	}
	<-first.Done() // nobody cancels it
}
