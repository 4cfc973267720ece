package conn

import (
	"sync"
	"sync/atomic"
	"testing"
)

// Of many who want some at once as many get it as of those who ask one after the other.
func TestNobodyIsRefusedForBytesThatAnotherWantsInVain(t *testing.T) {
	t.Parallel()
	const most, asking, each, want = 32, 64, 2, 16
	for range 2000 {
		b := NewBudget(most)
		var got atomic.Int32
		var begin, done sync.WaitGroup
		begin.Add(1)
		for range asking {
			done.Go(func() {
				begin.Wait()
				if b.All(each) {
					got.Add(1)
				}
			})
		}
		begin.Done()
		done.Wait()
		if n := got.Load(); n != want || b.Used() != most {
			t.Fatalf("%d of %d got theirs, and %d bytes are used; want %d", n, asking, b.Used(), want)
		}
	}
}
