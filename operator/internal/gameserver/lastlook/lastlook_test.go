package lastlook

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// TestALastLook asks sidecars that answer in different ways, and reads what counts.
func TestALastLook(t *testing.T) {
	s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby", UID: "server"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod"}}
	another := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "another"}}
	for name, c := range map[string]struct {
		reply   reportapi.Looked
		allowed bool
	}{
		"it may go":                       {reportapi.Looked{Replied: true, ShutdownSeen: true, DeletionAllowed: true}, true},
		"somebody plays":                  {reportapi.Looked{Replied: true, ShutdownSeen: true}, false},
		"the sidecar doesn't know of it":  {reportapi.Looked{Replied: true, DeletionAllowed: true}, false},
		"the sidecar doesn't reply":       {reportapi.Looked{}, false},
		"a peer that isn't to be trusted": {reportapi.Looked{ShutdownSeen: true, DeletionAllowed: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked, passes atomic.Int32
				l := &Looks{
					now: time.Now, replies: map[types.UID]reply{},
					ask: func(context.Context, *v1alpha1.Server, types.UID) reportapi.Looked {
						asked.Add(1)
						<-time.After(10 * time.Millisecond)
						return c.reply
					},
					replied: func(types.NamespacedName) { passes.Add(1) },
				}
				for range 3 {
					l.Begin(t.Context(), s, pod)
				}
				if l.Allowed(s, pod) {
					t.Error("it counts as allowed before the reply")
				}
				synctest.Wait()
				<-time.After(20 * time.Millisecond)
				if asked.Load() != 1 {
					t.Errorf("the sidecar was asked %d times at once, want once", asked.Load())
				}
				if got := l.Allowed(s, pod); got != c.allowed {
					t.Errorf("allowed is %t, want %t", got, c.allowed)
				}
				if l.Allowed(s, another) {
					t.Error("another Pod is allowed by that")
				}
				if want := map[bool]int32{true: 1}[c.reply.Replied]; passes.Load() != want {
					t.Errorf("%d passes were caused, want %d", passes.Load(), want)
				}
				<-time.After(lookCounts)
				if l.Allowed(s, pod) {
					t.Error("an old reply counts")
				}
				l.Begin(t.Context(), s, pod)
				<-time.After(20 * time.Millisecond)
				if asked.Load() != 2 {
					t.Errorf("it was asked %d times, want once more after a while", asked.Load())
				}
				l.Forget(s.UID)
				<-time.After(20 * time.Millisecond)
				synctest.Wait()
				if len(l.replies) > 0 || l.asking != 0 {
					t.Errorf("of a Server that is gone it keeps %v, and asks %d", l.replies, l.asking)
				}
			})
		})
	}
}

// One that never replies is asked ever more seldom.
func TestASidecarThatNeverRepliesIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		l := &Looks{
			now: time.Now, replies: map[types.UID]reply{}, replied: func(types.NamespacedName) {},
			ask: func(context.Context, *v1alpha1.Server, types.UID) reportapi.Looked {
				asked.Add(1)
				return reportapi.Looked{}
			},
		}
		s, pod := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{UID: "server"}}, &corev1.Pod{}
		for began := time.Now(); time.Since(began) < 10*time.Minute; {
			<-time.After(l.Begin(t.Context(), s, pod))
		}
		if n := asked.Load(); n < 15 || n > 30 {
			t.Errorf("it was asked %d times within ten minutes", n)
		}
	})
}

// Sidecars that don't answer don't pile up.
func TestLastLooksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, most := 0, 0
		l := &Looks{now: time.Now, replies: map[types.UID]reply{}, replied: func(types.NamespacedName) {}}
		release := make(chan struct{})
		done := make(chan struct{}, 2*maxLooks)
		l.ask = func(context.Context, *v1alpha1.Server, types.UID) reportapi.Looked {
			<-release
			done <- struct{}{}
			return reportapi.Looked{}
		}
		for i := range 2 * maxLooks {
			s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{UID: types.UID(rune('a' + i))}}
			if again := l.Begin(t.Context(), s, &corev1.Pod{}); again <= 0 {
				t.Errorf("Server %d is looked at again after %s", i, again)
			}
			l.mu.Lock()
			running = l.asking
			l.mu.Unlock()
			most = max(most, running)
		}
		close(release)
		synctest.Wait()
		if most != maxLooks || len(done) != maxLooks || l.asking != 0 {
			t.Errorf("%d were asked at once, %d in all, and %d still are; want %d, %d, 0", most, len(done), l.asking, maxLooks, maxLooks)
		}
	})
}
