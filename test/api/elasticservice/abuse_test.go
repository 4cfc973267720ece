package elasticservice_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/abuse"
	"dormouse.dev/dormouse/test/api/fixture"
)

const (
	abuseCalls = 20_000
	// abuseGrowth is what the operator's memory may grow by from the first quarter
	// of the calls to the last. The race detector, which the operator is built with
	// here, multiplies what it needs.
	abuseGrowth = 48 << 20
)

// TestAbuseOfTheWakeEndpoint counts every call that one replica gets, so that it
// doesn't run in parallel. "make bench-abuse" does ten times as much, to an
// operator in a pod.
func TestAbuseOfTheWakeEndpoint(t *testing.T) {
	w := newWorld(t)
	const services = 8
	for i := range services {
		w.asleep(fmt.Sprintf("lobby-%d", i))
	}
	pod := cluster.resolvers.members[0].pod
	token := func(account, audience string, pod *corev1.Pod) string {
		t.Helper()
		got, err := fixture.Token(t.Context(), cluster.client, fixture.SystemNamespace, account, audience, pod)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	tokens := abuse.Tokens{
		Good:          token(resolverAccount, wellknown.TokenAudience, pod),
		OtherAudience: token(resolverAccount, "example.com", pod),
		OtherAccount:  token(fixture.OperatorAccount, wellknown.TokenAudience, nil),
		NoPod:         token(resolverAccount, wellknown.TokenAudience, nil),
		SigningKey:    fixture.SigningKey(t),
	}
	kinds, err := abuse.Kinds(tokens, 200)
	if err != nil {
		t.Fatal(err)
	}
	attack := abuse.Attack{
		Address: cluster.operators[0].Address, Kinds: kinds, Calls: abuseCalls, Connections: 16,
		Good: func(i int) []byte {
			return abuse.Call(tokens.Good, fmt.Sprintf(`{"count":1,"svc":"lobby-%d","namespace":%q}`, i%services, w.ns))
		},
		Every: 100 * time.Millisecond,
	}
	result, err := attack.Run(t.Context())
	if err != nil {
		t.Error(err)
	}
	if len(result.Good) == 0 {
		t.Fatal("no good call was made meanwhile")
	}
	slices.Sort(result.Good)
	t.Logf("%d kinds, %v by code, in %s; %d good calls, %d told to come again, the median took %s and the longest %s; resident bytes %d",
		len(kinds), result.Codes, result.Took, len(result.Good), result.Again, result.Good[len(result.Good)/2], result.Good[len(result.Good)-1], result.RSS)
	if first, last := result.RSS[1], result.RSS[len(result.RSS)-1]; last > first+abuseGrowth {
		t.Errorf("resident memory grew from %d to %d bytes, want at most %d more", first, last, abuseGrowth)
	}
	for _, code := range []int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge,
	} {
		if result.Codes[code] == 0 {
			t.Errorf("no call was to be refused with %d", code)
		}
	}
}
