package httpserver

import (
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestWhatIsUnansweredIsBoundedForAllTogether(t *testing.T) {
	closed := New(Options{Log: logr.Discard()}).closed
	g := NewGate(nil, Bounds{Connections: 10, OfCaller: 10, Unanswered: 1000}, closed, logr.Discard()).(*gate)
	all := come(t, g, "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4")
	gone := func(want ...bool) {
		t.Helper()
		var got []bool
		for _, c := range all {
			got = append(got, c.gone)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("those that are closed are %v, want %v", got, want)
		}
	}
	first, second, third, user := all[0], all[1], all[2], all[3]
	g.received(first, 400)
	g.received(second, 400)
	done := Asking(first)
	g.received(first, 200)
	done()
	g.received(second, 500) // what the first one sent is answered
	gone(false, false, false, false)
	// Of two requests at a time both are to be answered.
	one, two := Asking(second), Asking(second)
	one()
	g.received(third, 100)
	gone(false, false, false, false)
	g.received(third, 1)
	gone(false, true, false, false)
	two()
	// Whoever showed a good token may send any number.
	accepted := Answering(user)
	g.received(user, 100_000)
	gone(false, true, false, false)
	accepted()
	g.received(user, 899)
	gone(false, true, false, false)
	g.received(first, 1)
	gone(false, true, true, false)
	// One that sends too much by itself is closed, too.
	g.received(first, 2000)
	gone(true, true, true, true)
	if g.unanswered.bytes != 0 || g.unanswered.from.Len() != 0 || g.open != 0 {
		t.Errorf("in the end %d bytes of %d connections are unanswered, and %d are open", g.unanswered.bytes, g.unanswered.from.Len(), g.open)
	}
	if n := testutil.ToFloat64(closed.WithLabelValues(tooMuchUnanswered)); n != 4 {
		t.Errorf("%v are counted", n)
	}
}

// A request takes memory until it is answered, however few bytes it has.
func TestARequestThatIsUnansweredCounts(t *testing.T) {
	closed := New(Options{Log: logr.Discard()}).closed
	g := NewGate(nil, Bounds{Connections: 10, OfCaller: 10, Unanswered: 1000, OfRequest: 300}, closed, logr.Discard()).(*gate)
	all := come(t, g, "192.0.2.1", "192.0.2.2")
	for range 10 {
		Asking(all[0])()
	}
	for range 3 {
		defer Asking(all[0])()
	}
	if all[0].gone {
		t.Fatal("it is closed before its time")
	}
	defer Asking(all[1])()
	if !all[0].gone || all[1].gone {
		t.Errorf("four requests are under way, and the one with three is closed: %t, the other: %t", all[0].gone, all[1].gone)
	}
	// Whoever shows a good token doesn't count any more.
	defer Answering(all[1])()
	if g.unanswered.bytes != 0 {
		t.Errorf("%d bytes are unanswered", g.unanswered.bytes)
	}
}
