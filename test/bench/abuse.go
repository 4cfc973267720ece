package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/abuse"
	"dormouse.dev/dormouse/test/env"
)

const (
	// abuseConnections is how many connections the attack has at once.
	abuseConnections = 16
	// abuseTokens is how many different tokens of strangers there are, more than
	// the operator remembers of any.
	abuseTokens = 10_000
	// abuseServices are woken in turn, one every abuseGoodEvery: each so seldom that
	// each wake asks the API server.
	abuseServices  = 24
	abuseGoodEvery = 50 * time.Millisecond
)

// abuseFigures are what abuse.json has.
type abuseFigures struct {
	Calls       int            `json:"calls"`
	Connections int            `json:"connections"`
	Seconds     float64        `json:"seconds"`
	ByKind      map[string]int `json:"calls_by_kind"`
	ByCode      map[int]int    `json:"answers_by_code"`
	// RSS is the operator's resident memory at the start and after each quarter.
	RSS       []float64 `json:"operator_rss_mib"`
	GoodWakes int       `json:"good_wakes"`
	// Again are good wakes that were told to come again.
	Again int `json:"good_wakes_told_to_come_again"`
	// Baseline are good wakes before the attack, Attacked those during it.
	Baseline quantiles `json:"good_wake_quiet_ms"`
	Attacked quantiles `json:"good_wake_attacked_ms"`
}

// benchAbuse attacks one operator pod. Its targets make no pods when they are
// woken, so that the figures are about the wake endpoint.
func benchAbuse(ctx context.Context, e *env.Env, o options) (_ any, err error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	if err := e.Client.Create(ctx, ns); err != nil {
		return nil, fmt.Errorf("create a namespace: %w", err)
	}
	defer func() { err = errors.Join(err, e.Client.Delete(context.WithoutCancel(ctx), ns)) }()
	if err := sleepers(ctx, e, ns.Name); err != nil {
		return nil, err
	}
	operator, err := e.Pod(ctx, "dormouse-operator")
	if err != nil {
		return nil, err
	}
	tokens, err := abuseTokensOf(ctx, e)
	if err != nil {
		return nil, err
	}
	kinds, err := abuse.Kinds(tokens, abuseTokens)
	if err != nil {
		return nil, err
	}
	attack := abuse.Attack{
		Address: net.JoinHostPort(operator.Status.PodIP, "8080"), Kinds: kinds, Calls: o.calls, Connections: abuseConnections,
		Good: func(i int) []byte {
			return abuse.Call(tokens.Good, fmt.Sprintf(`{"count":1,"svc":"sleeper-%d","namespace":%q}`, i%abuseServices, ns.Name))
		},
		Every: abuseGoodEvery,
	}
	baseline, err := attack.Baseline(ctx, 10*time.Second)
	if err != nil {
		return nil, err
	}
	result, err := attack.Run(ctx)
	if err != nil {
		return nil, err
	}
	f := abuseFigures{
		Calls: o.calls, Connections: abuseConnections, Seconds: math.Round(result.Took.Seconds()*10) / 10,
		ByKind: result.Calls, ByCode: result.Codes, GoodWakes: len(result.Good), Again: result.Again,
		Baseline: quantilesOf(baseline), Attacked: quantilesOf(result.Good),
	}
	for _, bytes := range result.RSS {
		f.RSS = append(f.RSS, math.Round(float64(bytes)/(1<<20)*10)/10)
	}
	fmt.Printf("%d bad wake calls over %d connections in %.1f s, all refused and counted: %v\n", f.Calls, f.Connections, f.Seconds, f.ByCode)
	fmt.Println("  good wake before it    ", f.Baseline)
	fmt.Println("  good wake meanwhile    ", f.Attacked)
	fmt.Printf("  good wakes              %d, and %d told to come again\n", f.GoodWakes, f.Again)
	fmt.Println("  operator's memory, MiB ", f.RSS)
	return f, nil
}

// sleepers makes services that sleep. A paused Deployment makes no pod.
func sleepers(ctx context.Context, e *env.Env, namespace string) error {
	for i := range abuseServices {
		g := env.Game{Namespace: namespace, Name: fmt.Sprintf("sleeper-%d", i), TCP: []int32{7000}, Change: func(d *appsv1.Deployment) { d.Spec.Paused = true }}
		if err := e.Create(ctx, g); err != nil {
			return err
		}
	}
	for i := range abuseServices {
		g := env.Game{Namespace: namespace, Name: fmt.Sprintf("sleeper-%d", i)}
		if _, err := e.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
			return err
		}
	}
	return nil
}

func abuseTokensOf(ctx context.Context, e *env.Env) (abuse.Tokens, error) {
	const account = "dormouse-resolver"
	resolver, err := e.Pod(ctx, account)
	if err != nil {
		return abuse.Tokens{}, err
	}
	var t abuse.Tokens
	for _, want := range []struct {
		into              *string
		account, audience string
		pod               *corev1.Pod
	}{
		{&t.Good, account, wellknown.TokenAudience, resolver},
		{&t.OtherAudience, account, "example.com", resolver},
		{&t.OtherAccount, "dormouse-operator", wellknown.TokenAudience, nil},
		{&t.NoPod, account, wellknown.TokenAudience, nil},
	} {
		if *want.into, err = e.Token(ctx, env.SystemNamespace, want.account, want.audience, want.pod); err != nil {
			return t, err
		}
	}
	t.SigningKey, err = e.Cluster.TokenKey()
	return t, err
}
