package planner

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var t0 = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC) // a Monday

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

func TestAWindowHasTheWishesThatCount(t *testing.T) {
	type step struct {
		at   int
		wish int32
	}
	for name, test := range map[string]struct {
		length  time.Duration
		steps   []step
		extreme func(a, b int32) bool
		want    window
		left    time.Duration
	}{
		"one wish":                               {time.Minute, []step{{0, 3}}, higher, window{{at(0), 3}}, 0},
		"a higher one takes all others' place":   {time.Minute, []step{{0, 3}, {10, 1}, {20, 5}}, higher, window{{at(20), 5}}, 0},
		"an equal one, too":                      {time.Minute, []step{{0, 3}, {20, 3}}, higher, window{{at(20), 3}}, 0},
		"lower ones wait behind it":              {time.Minute, []step{{0, 5}, {10, 3}, {20, 1}}, higher, window{{at(10), 5}, {at(20), 3}, {at(20), 1}}, 50 * time.Second},
		"what is in between is forgotten":        {time.Minute, []step{{0, 5}, {10, 1}, {20, 3}}, higher, window{{at(10), 5}, {at(20), 3}}, 50 * time.Second},
		"until its time is over":                 {time.Minute, []step{{0, 5}, {10, 3}, {70, 3}}, higher, window{{at(70), 3}}, 0},
		"and no second before":                   {time.Minute, []step{{0, 5}, {10, 3}, {69, 3}}, higher, window{{at(10), 5}, {at(69), 3}}, time.Second},
		"a wish holds on until another is made":  {time.Minute, []step{{0, 5}, {3600, 3}}, higher, window{{at(3600), 5}, {at(3600), 3}}, time.Minute},
		"the lowest":                             {time.Minute, []step{{0, 1}, {10, 5}, {20, 3}}, lower, window{{at(10), 1}, {at(20), 3}}, 50 * time.Second},
		"no time at all":                         {0, []step{{0, 5}, {0, 3}, {10, 1}}, higher, window{{at(10), 1}}, 0},
		"a clock that went back an hour":         {time.Minute, []step{{3600, 5}, {3610, 3}, {0, 3}}, higher, window{{at(0), 5}, {at(0), 3}}, time.Minute},
		"a clock that went back makes none wait": {time.Minute, []step{{3600, 5}, {3610, 3}, {0, 3}, {60, 3}}, higher, window{{at(60), 3}}, 0},
	} {
		var w window
		for _, s := range test.steps {
			before := slices.Clone(w)
			next := w.add(at(s.at), test.length, s.wish, test.extreme)
			if diff := cmp.Diff(before, w, cmp.AllowUnexported(sample{})); diff != "" {
				t.Errorf("%s: the earlier window changed (-before +after):\n%s", name, diff)
			}
			w = next
		}
		if diff := cmp.Diff(test.want, w, cmp.AllowUnexported(sample{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got := w.left(w[len(w)-1].at, test.length); got != test.left {
			t.Errorf("%s: the extreme counts for %s, want %s", name, got, test.left)
		}
	}
}

func TestAWindowIsBounded(t *testing.T) {
	var w window
	for i := range 5000 {
		w = w.add(at(i), time.Hour, int32(10000-i), higher)
		if len(w) > maxSamples {
			t.Fatalf("after %d wishes it has %d", i+1, len(w))
		}
		if w[0].wish < 10000-int32(i) {
			t.Fatalf("after %d wishes the highest is %d", i+1, w[0].wish)
		}
	}
	// No wish of the last hour is lost.
	if want := int32(10000 - 4999 + 3599); w[0].wish < want {
		t.Errorf("the highest is %d, want %d at least", w[0].wish, want)
	}
	if last := w[len(w)-1]; last.wish != 10000-4999 {
		t.Errorf("the newest is %d", last.wish)
	}
	w = w.add(at(5000+3600), time.Hour, 1, higher)
	if got := w.add(at(5000+2*3600), time.Hour, 1, higher); len(got) != 1 {
		t.Errorf("what is older than the window is still there: %v", got)
	}
}
