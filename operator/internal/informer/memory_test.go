package informer

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestWhatHappenedLatelyIsRememberedForItsTimeAndNotMuchLonger(t *testing.T) {
	t.Parallel()
	l := memory[int]{keep: time.Second}
	began := time.Unix(1000, 0)
	for i := range 100 {
		at := began.Add(time.Duration(i) * 100 * time.Millisecond)
		*l.of(at, types.UID(fmt.Sprint(i))) = i
		for back := range min(i, 10) {
			uid := types.UID(fmt.Sprint(i - back))
			if v := cmp.Or(l.now[uid], l.earlier[uid]); v == nil || *v != i-back {
				t.Fatalf("%d: what was remembered %d00 ms ago is %v", i, back, v)
			}
		}
		if n := len(l.now) + len(l.earlier); n > 22 {
			t.Fatalf("%d: %d are remembered, want those of two seconds", i, n)
		}
	}
	*l.of(began.Add(time.Hour), "late") = 1
	if l.now["99"] != nil || len(l.now)+len(l.earlier) != 1 {
		t.Error("what was remembered an hour ago still is")
	}
	*l.of(began.Add(time.Hour), "late") = 2
	if v := *l.of(began.Add(time.Hour), "late"); v != 2 {
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
		w.services.of(at, uids[i%len(uids)]).answered = at
		i++
	}
}
