package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/test/bench/process"
	"dormouse.dev/dormouse/test/bench/scale/cluster"
)

const (
	// stormSize is how many services are woken within stormTime.
	stormSize = 500
	stormTime = time.Second
	// retryCall is how long after a wake call that failed the next one is made, as a resolver does.
	retryCall = time.Second
)

// storm is what becomes of many wake calls at once.
type storm struct {
	Wakes int `json:"wakes"`
	// Answer is how long a wake call's first answer takes, ScaleWrite how long after the call a watch shows
	// the target's replicas.
	Answer     quantiles `json:"answer_ms"`
	ScaleWrite quantiles `json:"scale_write_ms"`
	// Last is from the first call until the last scale write was seen.
	Last float64 `json:"all_scaled_seconds"`
	// Accepted is until each call, or a later one for its service, was answered that it wakes.
	Accepted float64 `json:"all_accepted_seconds"`
	// Again counts calls that had to be made once more.
	Again int `json:"calls_again"`
}

// waker makes wake calls as a resolver does.
type waker struct {
	web   *http.Client
	token string
}

func newWaker(c *cluster.Cluster) (*waker, error) {
	token, err := os.ReadFile(c.TokenFile(cluster.ResolverName))
	if err != nil {
		return nil, fmt.Errorf("read the resolver's token: %w", err)
	}
	return &waker{token: string(token), web: &http.Client{
		// A resolver's own bounds.
		Timeout: time.Second, Transport: &http.Transport{MaxConnsPerHost: 512, MaxIdleConnsPerHost: 512},
	}}, nil
}

// call wakes a service.
func (w *waker) call(ctx context.Context, address string, key client.ObjectKey) error {
	body, err := json.Marshal(informerapi.WakeRequest{Count: 1, Svc: key.Name, Namespace: key.Namespace})
	if err != nil {
		return fmt.Errorf("encode a wake call: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+informerapi.WakePath, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("build a wake call: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+w.token)
	req.Header.Set(informerapi.PreferHeader, informerapi.RespondAsync)
	res, err := w.web.Do(req)
	if err != nil {
		return fmt.Errorf("wake %s: %w", key, err)
	}
	defer func() { _ = res.Body.Close() }()
	said, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if err != nil {
		return fmt.Errorf("wake %s: %w", key, err)
	}
	if res.StatusCode != http.StatusAccepted {
		return fmt.Errorf("wake %s: it was answered %s %s", key, res.Status, said)
	}
	return nil
}

// storm wakes services, evenly within a second. All sleep before.
func (s *services) storm(ctx context.Context, count int) (storm, error) {
	s.woken.forget()
	w, err := newWaker(s.cluster)
	if err != nil {
		return storm{}, err
	}
	f := storm{Wakes: count}
	calls := make([]time.Time, count)
	answers := make([]time.Duration, count)
	var mu sync.Mutex
	var group sync.WaitGroup
	began := time.Now()
	for i := range count {
		group.Go(func() {
			if wait(ctx, time.Until(began.Add(time.Duration(i)*stormTime/time.Duration(count)))) != nil {
				return
			}
			calls[i] = time.Now()
			for ctx.Err() == nil {
				err := w.call(ctx, s.cluster.Address, keyOf(i))
				if answers[i] == 0 {
					answers[i] = time.Since(calls[i])
				}
				if err == nil {
					return
				}
				mu.Lock()
				f.Again++
				mu.Unlock()
				_ = wait(ctx, retryCall)
			}
		})
	}
	group.Wait()
	f.Accepted = rounded(time.Since(began).Seconds())
	err = process.Until(ctx, phaseTime, "all targets are scaled", func() (bool, error) {
		for i := range count {
			if s.woken.of(keyOf(i)).IsZero() {
				return false, s.cluster.Alive(ctx)
			}
		}
		return true, nil
	})
	if err != nil {
		return f, err
	}
	var written []time.Duration
	last := began
	for i := range count {
		at := s.woken.of(keyOf(i))
		written = append(written, at.Sub(calls[i]))
		if at.After(last) {
			last = at
		}
	}
	f.Answer, f.ScaleWrite, f.Last = quantilesOf(answers), quantilesOf(written), rounded(last.Sub(began).Seconds())
	return f, nil
}
