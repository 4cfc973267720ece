package conn

import (
	"sync"
	"testing"
)

// There is room for one and not for another, who asks again and again.
func TestNobodyIsRefusedForBytesThatAnotherWantsInVain(t *testing.T) {
	t.Parallel()
	b := NewBudget(32)
	b.Force(30)
	done := make(chan struct{})
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if b.All(4) {
					t.Error("it got more than is left")
				}
			}
		})
	}
	refused := 0
	for range 300_000 {
		if !b.All(2) {
			refused++
			continue
		}
		b.Give(2)
	}
	close(done)
	group.Wait()
	if refused > 0 || b.Used() != 30 {
		t.Errorf("%d of 300000 were refused though there was room, and %d bytes are used", refused, b.Used())
	}
}
