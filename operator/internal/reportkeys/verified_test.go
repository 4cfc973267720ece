package reportkeys

import (
	"errors"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reporttoken"
)

// A token is verified once for a few reports, and is good for no longer because of that.
func TestAVerifiedTokenIsKept(t *testing.T) {
	t.Parallel()
	c := newCluster()
	began := time.Now()
	c.set(began)
	k := c.replica()
	pass(t, k)
	id := provided(t, k)
	token := c.tokenOf(t, id, reporttoken.Pod{Namespace: games, Name: "lobby", UID: "1"})
	v := &Verifier{Keys: k, Accounts: accounts{}}
	verify := func() error {
		got, err := v.Verify(t.Context(), token)
		if err == nil && (got.PodName != "lobby" || got.ReportKey != id) {
			t.Errorf("it is known as %+v", got)
		}
		return err
	}
	kept := func() bool {
		_, ok := v.verified.find(sumOf(token), k.keys(), c.now())
		return ok
	}
	for range 2 {
		if err := verify(); err != nil || !kept() {
			t.Errorf("it is good: %v; kept: %t", err, kept())
		}
	}
	got, err := v.Verify(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	c.set(got.Expires.Add(-time.Nanosecond))
	if err := verify(); err != nil {
		t.Errorf("just before it expires: %v", err)
	}
	c.set(began.Add(-time.Hour))
	if err := verify(); !errors.Is(err, reporttoken.ErrTime) {
		t.Errorf("an hour before it was signed: %v", err)
	}
	c.set(got.Expires)
	if err := verify(); !errors.Is(err, reporttoken.ErrTime) {
		t.Errorf("once it has expired: %v", err)
	}
	c.set(began)
	if err := verify(); err != nil || !kept() {
		t.Errorf("it is good: %v; kept: %t", err, kept())
	}
	// It isn't verified again.
	v.verified.young[sumOf(token)] = reporttoken.Claim{Pod: reporttoken.Pod{Name: "marked"}, Expires: began.Add(time.Minute)}
	if got, err := v.Verify(t.Context(), token); err != nil || got.PodName != "marked" {
		t.Errorf("what is kept isn't used: it is known as %+v, %v", got, err)
	}
	c.change(t, func(s *corev1.Secret) {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, wellknown.RevokedReportKeysAnnotation, id)
	})
	pass(t, k)
	if err := verify(); !errors.Is(err, ErrUnknown) {
		t.Errorf("once its key is revoked: %v", err)
	}
}

// Whoever has a key may sign any number of tokens.
func TestFewVerifiedTokensAreKept(t *testing.T) {
	t.Parallel()
	var v verified
	with, now := &keys{}, time.Now()
	claim := reporttoken.Claim{Expires: now.Add(4 * time.Minute)}
	for i := range 5 * mostKept {
		v.add(sumOf(strconv.Itoa(i)), claim, with, now)
	}
	if n := len(v.young) + len(v.old); n > 2*mostKept {
		t.Errorf("%d are kept", n)
	}
	for i := range 5 * mostKept { // each that is kept is used
		v.find(sumOf(strconv.Itoa(i)), with, now)
	}
	if len(v.young) > mostKept || len(v.old) > mostKept {
		t.Errorf("%d and %d are kept once they are used", len(v.young), len(v.old))
	}
	last := sumOf(strconv.Itoa(5*mostKept - 1))
	after := time.Duration(0)
	next := func() { // others come
		after += keepTime
		v.add(sumOf(after.String()), claim, with, now.Add(after))
	}
	for range 3 {
		next()
		if _, ok := v.find(last, with, now.Add(after)); !ok {
			t.Errorf("the last one, which is used, is forgotten before %s", after)
		}
	}
	next()
	next()
	if _, ok := v.find(last, with, now.Add(after)); ok {
		t.Error("the last one is kept though it isn't used")
	}
	if n := len(v.young) + len(v.old); n > 2 {
		t.Errorf("%d are kept long after the others", n)
	}
}
