package allocation_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"dormouse.dev/dormouse/operator/internal/restapi/allocate"
)

// BenchmarkAllocate measures a closed loop of callers over 500 Ready Servers: each allocates and
// releases. The times are those of the allocations alone.
func BenchmarkAllocate(b *testing.B) {
	w := newWorld(b)
	w.serversOf(500, 0)
	leader := w.replica(true)
	w.seen(leader, 500)
	for _, callers := range []int{8, 64} {
		b.Run(fmt.Sprint(callers, " callers"), func(b *testing.B) {
			var mu sync.Mutex
			var took []time.Duration
			var group sync.WaitGroup
			began := time.Now()
			for c := range callers {
				group.Go(func() {
					var own []time.Duration
					for i := range b.N {
						asked := time.Now()
						r, err := leader.Allocate(b.Context(), w.Namespace, allocate.Request{Session: fmt.Sprint(c, "/", i), Target: game})
						if err != nil {
							b.Error(err)
							return
						}
						own = append(own, time.Since(asked))
						if err := leader.Release(b.Context(), w.Namespace, r.Session); err != nil {
							b.Error(err)
							return
						}
					}
					mu.Lock()
					took = append(took, own...)
					mu.Unlock()
				})
			}
			group.Wait()
			slices.Sort(took)
			if len(took) == 0 {
				return
			}
			b.ReportMetric(float64(len(took))/time.Since(began).Seconds(), "allocations/s")
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}
