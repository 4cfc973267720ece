package guard

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestAServiceThatIsFloodedLeavesRoomForOthers(t *testing.T) {
	s := NewShare(900)
	var flooded, other, third atomic.Int32
	take := func(own *atomic.Int32) (n int) {
		for s.Take(own, 1) {
			n++
		}
		return n
	}
	if n := take(&flooded); n != 800 {
		t.Errorf("a flood takes %d of 900, want 800", n)
	}
	n, m := take(&other), take(&third)
	if n < 80 || m < 8 {
		t.Errorf("others get %d and %d of what is left", n, m)
	}
	// What is given back is there again.
	for range 800 {
		s.Force(&flooded, -1)
	}
	if s.Used() != n+m || flooded.Load() != 0 {
		t.Errorf("%d are used, want %d", s.Used(), n+m)
	}
	if !s.Take(&other, 1) {
		t.Error("there is room again, and it isn't given")
	}
}

func TestWhatTakesTwoPlacesNeedsTwo(t *testing.T) {
	s, own := NewShare(3), atomic.Int32{}
	if !s.Take(&own, 2) || s.Take(&own, 2) || !s.Take(&own, 1) || s.Used() != 3 || own.Load() != 3 {
		t.Errorf("%d of 3 are used", s.Used())
	}
}

func TestAShareIsNeverExceeded(t *testing.T) {
	for most := range 20 {
		s := NewShare(most)
		owns := make([]atomic.Int32, 30)
		for range 30 {
			for i := range owns {
				s.Take(&owns[i], 1)
			}
		}
		if s.Used() > most || most > 0 && s.Used() < most {
			t.Errorf("%d of %d are used", s.Used(), most)
		}
	}
}

// Of many who ask at once as many get places as of those who ask one after the other.
func TestNobodyIsRefusedForWhatAnotherAsksInVain(t *testing.T) {
	t.Parallel()
	const most, asking, each, want = 36, 64, 2, 16
	for range 2000 {
		s, own := NewShare(most), atomic.Int32{}
		var got atomic.Int32
		var begin, done sync.WaitGroup
		begin.Add(1)
		for range asking {
			done.Go(func() {
				begin.Wait()
				if s.Take(&own, each) {
					got.Add(1)
				}
			})
		}
		begin.Done()
		done.Wait()
		if n := got.Load(); n != want || s.Used() != want*each {
			t.Fatalf("%d of %d got places, and %d are used; want %d", n, asking, s.Used(), want)
		}
	}
}
