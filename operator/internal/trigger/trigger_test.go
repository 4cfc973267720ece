package trigger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/triggerauth"
)

// poller is a Poller whose pods answer as the test says, until the test ends.
func poller(t *testing.T, ask func(ctx context.Context, pod string) (float64, error)) (p *Poller, notified chan types.NamespacedName) {
	t.Helper()
	notified = make(chan types.NamespacedName, 1000)
	p = NewPoller(Options{Notify: func(key types.NamespacedName) { notified <- key }})
	p.ask = func(ctx context.Context, _ string, pod []string, _ *v1alpha1.HTTPTrigger, _ triggerauth.Access) (float64, error) {
		return ask(ctx, pod[0])
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { _ = p.Start(ctx) }()
	synctest.Wait()
	return p, notified
}

// of is a service with so many triggers and pods, which are named after it.
func of(name string, triggers, pods int) (types.NamespacedName, Service) {
	s := Service{Every: MaxInterval}
	for range triggers {
		s.Triggers = append(s.Triggers, v1alpha1.Trigger{Type: v1alpha1.TriggerHTTP, HTTP: &v1alpha1.HTTPTrigger{Threshold: 1}})
	}
	for i := range pods {
		s.Pods = append(s.Pods, []string{fmt.Sprint(name, "-", i)})
	}
	return types.NamespacedName{Namespace: name, Name: "lobby"}, s
}

// answerAfter answers after a time, or when the context ends.
func answerAfter(ctx context.Context, after time.Duration) (float64, error) {
	select {
	case <-time.After(after):
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func TestPodsAreAskedSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, notified := poller(t, func(ctx context.Context, _ string) (float64, error) { return answerAfter(ctx, 100*time.Millisecond) })
		key, s := of("games", 8, 10)
		began := time.Now()
		p.Read(key, s)
		<-notified
		if took := time.Since(began); took > 80/maxOfNamespace*100*time.Millisecond {
			t.Errorf("80 answers of 0.1 s each took %s", took)
		}
		if r := p.Read(key, s); r.Err != nil || r.BelowSince.IsZero() {
			t.Errorf("got %+v", r)
		}
	})
}

// Slow pods cost their own service a bounded time, and others nothing.
func TestSlowPodsKeepNobodyElseWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, notified := poller(t, func(ctx context.Context, pod string) (float64, error) {
			if strings.HasPrefix(pod, "slow") {
				return answerAfter(ctx, timeout)
			}
			return 0, nil
		})
		for i := range 100 {
			key, s := of(fmt.Sprintf("slow%d", i), 4, 50)
			p.Read(key, s)
		}
		synctest.Wait()
		key, healthy := of("games", 1, 1)
		began := time.Now()
		p.Read(key, healthy)
		for got := range notified {
			if got == key {
				break
			}
		}
		if took := time.Since(began); took > timeout {
			t.Errorf("a healthy service's answer took %s while 100 namespaces are slow, want %s at most", took, timeout)
		}
		slow, s := of("slow0", 4, 50)
		<-time.After(pollTime)
		if r := p.Read(slow, s); r.Err == nil || !strings.Contains(r.Err.Error(), "didn't all answer within") {
			t.Errorf("of a slow service there is %+v", r)
		}
	})
}

func TestAReadingThatIsWantedIsNewAndTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var busy float64
		p, notified := poller(t, func(context.Context, string) (float64, error) { return busy, nil })
		key, s := of("games", 1, 1)
		p.Read(key, s)
		<-notified
		<-time.After(time.Second)
		since := time.Now()
		if r, read := p.ReadSince(key, s, since); read {
			t.Errorf("there is %+v, from before it was wanted", r)
		}
		if got := <-notified; got != key || time.Since(since) > time.Second {
			t.Errorf("told of %s after %s", got, time.Since(since))
		}
		if r, read := p.ReadSince(key, s, since); !read || r.Err != nil || r.BelowSince.IsZero() || r.At.Before(since) {
			t.Errorf("there is %+v, %t", r, read)
		}
		busy = 1
		<-time.After(time.Second)
		since = time.Now()
		p.ReadSince(key, s, since)
		<-notified
		if r, read := p.ReadSince(key, s, since); !read || !r.BelowSince.IsZero() {
			t.Errorf("of a busy service there is %+v, %t", r, read)
		}
	})
}

func TestOneErrorSpeaksForMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, notified := poller(t, func(context.Context, string) (float64, error) { return 0, errors.New("it is broken") })
		key, s := of("games", 8, 100)
		p.Read(key, s)
		<-notified
		if r := p.Read(key, s); r.Err == nil || r.Err.Error() != "it is broken (and 799 more)" || !r.BelowSince.IsZero() {
			t.Errorf("got %+v", r)
		}
	})
}
