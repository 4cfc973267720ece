package lookout

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/operator/internal/diagnosis"
)

// Looks that are slow, however many a namespace has, keep no pass waiting, and no other
// namespace for long.
func TestLooksHoldNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		notified := make(chan types.NamespacedName, 1000)
		l := New(func(key types.NamespacedName) { notified <- key })
		slow := func(ctx context.Context) (diagnosis.Finding, error) {
			<-ctx.Done()
			return diagnosis.Finding{}, ctx.Err()
		}
		began := time.Now()
		for i := range 200 {
			name := fmt.Sprint("slow-", i)
			l.start(t.Context(), types.NamespacedName{Namespace: "slow", Name: name}, types.UID(name), slow)
		}
		key := types.NamespacedName{Namespace: "games", Name: "lobby"}
		for range 2 { // one look at a time
			l.start(t.Context(), key, "lobby", func(context.Context) (diagnosis.Finding, error) {
				return diagnosis.Finding{Reason: "Found"}, nil
			})
		}
		if got := <-notified; got != key || time.Since(began) > 0 {
			t.Errorf("told of %s after %s", got, time.Since(began))
		}
		if found := l.take("lobby"); found == nil || found.err != nil || found.finding.Reason != "Found" {
			t.Errorf("it has found %+v", found)
		}
		if found := l.take("lobby"); found != nil {
			t.Errorf("it has found %+v once more", found)
		}
		if found := l.take("slow-0"); found != nil {
			t.Errorf("a look that is under way has found %+v", found)
		}
		l.Forget("slow-0")
		<-time.After(lookPatience + diagnoseTime)
		synctest.Wait()
		errs := 0
		for i := range 200 {
			if found := l.take(types.UID(fmt.Sprint("slow-", i))); found != nil && errors.Is(found.err, context.DeadlineExceeded) {
				errs++
			}
		}
		if errs != 199 || len(l.all) != 0 || len(notified) != 199 {
			t.Errorf("%d looks failed, %d are known still, and %d were told; want 199, none and 199", errs, len(l.all), len(notified))
		}
	})
}
