package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/env"
)

// event is something that happens once.
type event struct {
	at   time.Time
	what string
}

// mark holds a moment until somebody asks for it.
type mark struct {
	once sync.Once
	ch   chan event
}

func newMark() *mark { return &mark{ch: make(chan event, 1)} }

func (m *mark) set(at time.Time, what string) { m.once.Do(func() { m.ch <- event{at, what} }) }

func (m *mark) wait(ctx context.Context, what string) (event, error) {
	select {
	case found := <-m.ch:
		return found, nil
	case <-ctx.Done():
		return event{}, fmt.Errorf("wait for %s: %w", what, ctx.Err())
	}
}

// story is what the API server tells of the game, by watches.
type story struct {
	wakeAsked, podCreated, serverUp, fallingAsleep, asleep *mark

	watches []watch.Interface
}

// observe begins to watch a game that sleeps.
func observe(ctx context.Context, e *env.Env, g env.Game) (*story, error) {
	s := &story{newMark(), newMark(), newMark(), newMark(), newMark(), nil}
	woken := false
	for _, w := range []struct {
		list client.ObjectList
		see  func(client.Object)
	}{
		{&v1alpha1.ElasticServiceList{}, func(o client.Object) {
			if es, ok := o.(*v1alpha1.ElasticService); ok {
				if es.Status.LastWakeTime != nil {
					s.wakeAsked.set(es.Status.LastWakeTime.Time, "")
				}
				if es.Status.Phase == v1alpha1.PhaseFallingAsleep {
					s.fallingAsleep.set(time.Now(), "")
				}
			}
		}},
		{&corev1.PodList{}, func(o client.Object) {
			if pod, ok := o.(*corev1.Pod); ok && pod.Labels[wellknown.GameTypeLabel] == g.Name {
				s.podCreated.set(time.Now(), "pod "+pod.Name)
				for _, c := range pod.Status.Conditions {
					if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
						s.serverUp.set(time.Now(), "")
					}
				}
			}
		}},
		{&v1alpha1.GameTypeList{}, func(o client.Object) {
			if gt, ok := o.(*v1alpha1.GameType); ok {
				replicas := ptr.Deref(gt.Spec.Replicas, 1)
				if scale := gt.Spec.Scale; scale != nil {
					replicas = scale.Replicas
				}
				woken = woken || replicas > 0
				if woken && replicas == 0 {
					s.asleep.set(time.Now(), "GameType "+gt.Name+" is at zero replicas")
				}
			}
		}},
	} {
		opened, err := e.Client.Watch(ctx, w.list, client.InNamespace(g.Namespace))
		if err != nil {
			s.end()
			return nil, fmt.Errorf("watch the game: %w", err)
		}
		s.watches = append(s.watches, opened)
		go func() {
			for event := range opened.ResultChan() {
				if o, ok := event.Object.(client.Object); ok {
					w.see(o)
				}
			}
		}()
	}
	return s, nil
}

func (s *story) end() {
	for _, w := range s.watches {
		w.Stop()
	}
}
