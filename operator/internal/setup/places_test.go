package setup

import (
	"runtime"
	"testing"
)

// Where there are few processors there are more places than that, and never fewer than there were, unless whoever
// runs the operator has said how many.
func TestThereArePlacesToSpare(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	for _, c := range []struct {
		set          string
		before, want int
	}{{"", 2, places}, {"", places + 1, places + 1}, {"3", 3, 3}} {
		t.Setenv("GOMAXPROCS", c.set)
		runtime.GOMAXPROCS(c.before)
		if takePlaces(); runtime.GOMAXPROCS(0) != c.want {
			t.Errorf("with %d, GOMAXPROCS=%q: %d places, want %d", c.before, c.set, runtime.GOMAXPROCS(0), c.want)
		}
	}
}
