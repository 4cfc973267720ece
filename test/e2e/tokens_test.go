package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// Scenario 13.
func TestOnlyAResolversTokenWakes(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{7000}, Probe: true}
	suite.Asleep(ctx, t, g)
	asleep := generation(ctx, t, g)

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "dormouse-resolver"}}
	if err := suite.Cluster.Client.Create(ctx, account); err != nil {
		t.Fatal(err)
	}
	resolver, err := suite.Cluster.Pod(ctx, "dormouse-resolver")
	if err != nil {
		t.Fatal(err)
	}
	token := func(namespace, account, audience string, pod *corev1.Pod) string {
		t.Helper()
		got, err := suite.Cluster.Token(ctx, namespace, account, audience, pod)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for name, token := range map[string]string{
		"no token":                             "",
		"a random string":                      "3a7bd3e2360a3d29eea436fcfb7e44c7",
		"another audience":                     token(env.SystemNamespace, "dormouse-resolver", "example.com", resolver),
		"the API server's audience":            token(env.SystemNamespace, "dormouse-resolver", "", resolver),
		"another account":                      token(env.SystemNamespace, "dormouse-operator", wellknown.TokenAudience, nil),
		"the same account name, in games":      token(ns, "dormouse-resolver", wellknown.TokenAudience, nil),
		"the resolver's account without a pod": token(env.SystemNamespace, "dormouse-resolver", wellknown.TokenAudience, nil),
	} {
		if code, body := wakeCall(ctx, t, g, token); code != http.StatusUnauthorized {
			t.Errorf("with %s: answered %d %s, want 401", name, code, body)
		}
	}
	es := &v1alpha1.ElasticService{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), es); err != nil {
		t.Fatal(err)
	}
	if es.Status.Phase != v1alpha1.PhaseAsleep || es.Status.LastWakeTime != nil || generation(ctx, t, g) != asleep {
		t.Errorf("after that the Deployment's generation is %d, it was %d; the ElasticService has status %+v",
			generation(ctx, t, g), asleep, es.Status)
	}

	// The same call with a resolver's own token wakes, and so does a player.
	if code, body := wakeCall(ctx, t, g, token(env.SystemNamespace, "dormouse-resolver", wellknown.TokenAudience, resolver)); code != http.StatusAccepted {
		t.Errorf("with a resolver's token: answered %d %s, want 202", code, body)
	}
	play, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
	defer cancel()
	p := suite.DialTCP(play, t, suite.ClusterIP(ctx, t, g, 7000))
	if _, err := p.Exchange(play); err != nil {
		t.Fatal(err)
	}
	suite.OneServer(ctx, t, ns)
}

// wakeCall calls the wake endpoint through its Service, from where players are.
func wakeCall(ctx context.Context, t *testing.T, g env.Game, token string) (int, string) {
	t.Helper()
	operator := types.NamespacedName{Namespace: env.SystemNamespace, Name: "dormouse-operator"}
	address, err := suite.Cluster.ClusterIP(ctx, operator, 8080, corev1.IPv4Protocol)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       suite.Cluster.DialPlayer,
	}}
	body := fmt.Sprintf(`{"count":1,"svc":%q,"namespace":%q}`, g.Name, g.Namespace)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/informer/incoming-request", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}

// generation counts how often a game's Deployment was changed.
func generation(ctx context.Context, t *testing.T, g env.Game) int64 {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), d); err != nil {
		t.Fatal(err)
	}
	return d.Generation
}
