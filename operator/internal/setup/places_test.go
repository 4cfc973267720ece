package setup

import (
	"runtime"
	"strconv"
	"testing"
)

// Where there are few processors there are more places than that, unless whoever runs the operator has said how many,
// or limits it, which shows in that Go doesn't take as many as there are processors.
func TestThereArePlacesToSpare(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	all := runtime.NumCPU()
	for _, c := range []struct {
		set          string
		before, want int
	}{{"", all, max(all, places)}, {"", all + 1, all + 1}, {strconv.Itoa(all), all, all}} {
		t.Setenv("GOMAXPROCS", c.set)
		runtime.GOMAXPROCS(c.before)
		if takePlaces(); runtime.GOMAXPROCS(0) != c.want {
			t.Errorf("with %d, GOMAXPROCS=%q: %d places, want %d", c.before, c.set, runtime.GOMAXPROCS(0), c.want)
		}
	}
}
