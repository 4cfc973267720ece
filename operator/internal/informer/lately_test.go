package informer

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestWhatHappenedLatelyIsRememberedForItsTimeAndNotMuchLonger(t *testing.T) {
	t.Parallel()
	l := lately[int]{keep: time.Second}
	began := time.Unix(1000, 0)
	for i := range 100 {
		at := began.Add(time.Duration(i) * 100 * time.Millisecond)
		l.set(at, types.UID(fmt.Sprint(i)), i)
		for back := range min(i, 10) {
			if v, ok := l.get(types.UID(fmt.Sprint(i - back))); !ok || v != i-back {
				t.Fatalf("%d: what was remembered %d00 ms ago is %d, %t", i, back, v, ok)
			}
		}
		if n := len(l.now) + len(l.earlier); n > 22 {
			t.Fatalf("%d: %d are remembered, want those of two seconds", i, n)
		}
	}
	l.set(began.Add(time.Hour), "late", 1)
	if _, ok := l.get("99"); ok || len(l.now)+len(l.earlier) != 1 {
		t.Error("what was remembered an hour ago still is")
	}
	l.set(began.Add(time.Hour), "late", 2)
	if v, _ := l.get("late"); v != 2 {
		t.Errorf("it is remembered as %d, want as it was last", v)
	}
}

// BenchmarkKeep is what a wake's memory costs while 10,000 services wake within a second.
func BenchmarkKeep(b *testing.B) {
	began := time.Unix(1000, 0)
	uids := make([]types.UID, 10000)
	for i := range uids {
		uids[i] = types.UID(fmt.Sprint(i))
	}
	w := NewWaker(nil, nil, nil, nil)
	i := 0
	for b.Loop() {
		at := began.Add(time.Duration(i) * 100 * time.Microsecond)
		w.keep(uids[i%len(uids)], recentWake{at: at})
		i++
	}
}
