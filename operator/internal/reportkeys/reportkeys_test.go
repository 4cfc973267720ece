package reportkeys

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reporttoken"
	"dormouse.dev/dormouse/internal/serviceauth"
	"dormouse.dev/dormouse/operator/internal/ownsecret"
)

const system, games = "system", "games"

// cluster is an API server with the operator's Secret, and a clock.
type cluster struct {
	client.Client
	nanoseconds atomic.Int64
	// creates counts Secrets that were to be created, and refuse refuses them.
	creates atomic.Int32
	refuse  error
	// made has a word for each that was created.
	made chan struct{}
}

func newCluster() *cluster {
	c := &cluster{made: make(chan struct{}, 100)}
	c.set(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	c.Client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).
		WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: ownsecret.Name}}).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if c.creates.Add(1); c.refuse != nil {
				return c.refuse
			}
			err := to.Create(ctx, o, opts...)
			c.made <- struct{}{}
			return err
		}}).Build()
	return c
}

func (c *cluster) now() time.Time { return time.Unix(0, c.nanoseconds.Load()).UTC() }

func (c *cluster) set(now time.Time) { c.nanoseconds.Store(now.UnixNano()) }

func (c *cluster) wait(d time.Duration) { c.nanoseconds.Add(int64(d)) }

// replica is an operator's.
func (c *cluster) replica() *Keeper {
	return &Keeper{Client: c, Namespace: system, Now: c.now}
}

func pass(t *testing.T, k *Keeper) time.Duration {
	t.Helper()
	result, err := k.Reconcile(t.Context(), reconcile.Request{NamespacedName: ownsecret.Key(system)})
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

// change changes the operator's Secret.
func (c *cluster) change(t *testing.T, change func(*corev1.Secret)) {
	t.Helper()
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), ownsecret.Key(system), secret); err != nil {
		t.Fatal(err)
	}
	change(secret)
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

func provided(t *testing.T, k *Keeper) string {
	t.Helper()
	id, err := k.Provide(t.Context(), games)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// tokenOf is the token of a sidecar that has the Secret of games, whatever it says it is.
func (c *cluster) tokenOf(t *testing.T, id string, pod reporttoken.Pod) string {
	t.Helper()
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: games, Name: SecretName(id)}, secret); err != nil {
		t.Fatal(err)
	}
	s, err := reporttoken.NewSigner(id, string(secret.Data[KeyData]), pod)
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.Get()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

type accounts struct{}

func (accounts) Verify(context.Context, string) (serviceauth.Identity, error) {
	return serviceauth.Identity{ServiceAccount: "somebody"}, nil
}

func TestASidecarIsKnownToEachReplica(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.set(time.Now())
	one, two := c.replica(), c.replica()
	pass(t, one)
	pass(t, two)
	id := provided(t, one)
	if got := provided(t, two); got != id {
		t.Fatalf("two replicas give the keys %s and %s", id, got)
	}
	lobby := reporttoken.Pod{Namespace: games, Name: "lobby", UID: "1"}
	want := serviceauth.Identity{Namespace: games, PodName: "lobby", PodUID: "1", ReportKey: id}
	for _, k := range []*Keeper{one, two} {
		v := &Verifier{Keys: k, Accounts: accounts{}}
		got, err := v.Verify(t.Context(), c.tokenOf(t, id, lobby))
		if want.Expires = got.Expires; err != nil || got != want || !got.Expires.After(c.now()) {
			t.Errorf("it is known as %+v, %v; want %+v", got, err, want)
		}
		// A namespace's key is good for no other namespace.
		lobby := reporttoken.Pod{Namespace: "others", Name: "lobby", UID: "1"}
		if got, err := v.Verify(t.Context(), c.tokenOf(t, id, lobby)); !errors.Is(err, reporttoken.ErrSignature) {
			t.Errorf("a stranger's Server: %+v, %v", got, err)
		}
		if got, err := v.Verify(t.Context(), "some other token"); err != nil || got.ServiceAccount != "somebody" {
			t.Errorf("another token: %+v, %v", got, err)
		}
	}
	v := &Verifier{Keys: c.replica(), Accounts: accounts{}}
	if _, err := v.Verify(t.Context(), c.tokenOf(t, id, lobby)); !errors.Is(err, serviceauth.ErrKeysUnavailable) {
		t.Errorf("a replica that has just begun: %v", err)
	}
}

func TestKeysRotate(t *testing.T) {
	t.Parallel()
	c := newCluster()
	k := c.replica()
	if again := pass(t, k); again != rotateAfter {
		t.Errorf("the first key is for %s, want %s", again, rotateAfter)
	}
	first := provided(t, k)
	c.wait(rotateAfter - time.Hour)
	if again := pass(t, k); again != time.Hour || provided(t, k) != first {
		t.Errorf("an hour before its end there is another key, or it is looked again after %s", again)
	}
	c.wait(time.Hour)
	pass(t, k)
	second := provided(t, k)
	if second == first {
		t.Error("the key is the same after its time")
	}
	// Whoever asks for another key gets one, once.
	c.wait(time.Hour)
	c.change(t, func(s *corev1.Secret) {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, wellknown.RotateReportKeysAnnotation, c.now().Format(time.RFC3339))
	})
	c.wait(time.Minute)
	pass(t, k)
	third := provided(t, k)
	pass(t, k)
	if third == second || provided(t, k) != third {
		t.Error("asked for another key there is none, or more than one")
	}
	// Pods that run keep theirs.
	lobby := reporttoken.Pod{Namespace: games, Name: "lobby", UID: "1"}
	c.set(time.Now())
	for _, id := range []string{first, second, third} {
		if got, err := (&Verifier{Keys: k}).Verify(t.Context(), c.tokenOf(t, id, lobby)); err != nil || got.ReportKey != id {
			t.Errorf("with key %s it is known as %+v, %v", id, got, err)
		}
	}
}

// A Secret that somebody has emptied gets its keys again: games that run sign with them.
func TestKeysOutlastTheirSecret(t *testing.T) {
	t.Parallel()
	c := newCluster()
	one, two := c.replica(), c.replica()
	pass(t, one)
	id := provided(t, one)
	for _, change := range []func(*corev1.Secret){
		func(s *corev1.Secret) { s.Data = nil },
		func(s *corev1.Secret) {
			s.Data = nil
			c.wait(rotateAfter)
		},
	} {
		c.change(t, change)
		pass(t, one)
		pass(t, one) // of what it wrote
		pass(t, two)
		for _, k := range []*Keeper{one, two} {
			if _, err := k.keys().of(id, games); err != nil {
				t.Errorf("a game that runs isn't known any more: %v", err)
			}
		}
	}
	if provided(t, two) == id {
		t.Error("a key that is restored is used for ever")
	}
	// One from a backup doesn't take newer keys away, and neither does a replica that has just
	// begun and found the Secret empty.
	c.change(t, func(s *corev1.Secret) { s.Data[dataKey] = []byte("[]") })
	pass(t, c.replica())
	pass(t, one)
	pass(t, two)
	if _, err := two.keys().of(id, games); err != nil {
		t.Errorf("a game that runs isn't known any more: %v", err)
	}
}

// A key that was stolen can be revoked, the only one, too.
func TestARevokedKeyIsGoodForNothing(t *testing.T) {
	t.Parallel()
	c := newCluster()
	k := c.replica()
	pass(t, k)
	id := provided(t, k)
	c.change(t, func(s *corev1.Secret) {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, wellknown.RevokedReportKeysAnnotation, "other, "+id)
	})
	pass(t, k)
	if _, err := k.keys().of(id, games); !errors.Is(err, ErrUnknown) {
		t.Errorf("a revoked key: %v", err)
	}
	if next := provided(t, k); next == id {
		t.Error("new Pods get the revoked key")
	}
}

// However often and however exactly somebody asks, there is one more key.
func TestARequestIsMetOnce(t *testing.T) {
	t.Parallel()
	c := newCluster()
	k := c.replica()
	pass(t, k)
	ask := func(at string) time.Duration {
		c.change(t, func(s *corev1.Secret) {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, wellknown.RotateReportKeysAnnotation, at)
		})
		left := pass(t, k)
		for range 5 {
			left = pass(t, k)
		}
		return left
	}
	c.wait(time.Hour + 600*time.Millisecond)
	ask(c.now().Add(-100 * time.Millisecond).Format(time.RFC3339Nano))
	if n := len(k.keys().ring); n != 2 {
		t.Errorf("there are %d keys, want 2", n)
	}
	// By a clock that is two seconds ahead.
	if left := ask(c.now().Add(2 * time.Second).Format(time.RFC3339Nano)); left != 2*time.Second || len(k.keys().ring) != 2 {
		t.Errorf("asked for a time to come it looks again after %s and has %d keys", left, len(k.keys().ring))
	}
	c.wait(2 * time.Second)
	pass(t, k)
	if n := len(k.keys().ring); n != 3 {
		t.Errorf("then there are %d keys, want 3", n)
	}
	if left := ask("tomorrow"); left != rotateAfter || len(k.keys().ring) != 3 {
		t.Errorf("asked for %q it looks again after %s and has %d keys", "tomorrow", left, len(k.keys().ring))
	}
}

func TestThereAreNeverMoreKeysThanThat(t *testing.T) {
	t.Parallel()
	var r ring
	now := time.Now()
	for range mostKeys + 10 {
		r = r.rotated(now)
	}
	if len(r) != mostKeys {
		t.Errorf("there are %d keys, want %d", len(r), mostKeys)
	}
}

// What is under the key is nobody's to throw away: running games sign with it.
func TestKeysThatCantBeReadAreKept(t *testing.T) {
	t.Parallel()
	short, err := json.Marshal(ring{{ID: "a", Secret: []byte("short")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{"{", string(short), `[{"id":"Not a name","secret":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}]`} {
		c := newCluster()
		c.change(t, func(s *corev1.Secret) { ownsecret.Set(s, dataKey, []byte(raw)) })
		k := c.replica()
		if _, err := k.Reconcile(t.Context(), reconcile.Request{NamespacedName: ownsecret.Key(system)}); err == nil {
			t.Errorf("%s is read", raw)
		}
		c.change(t, func(s *corev1.Secret) {
			if string(s.Data[dataKey]) != raw {
				t.Errorf("%s was replaced", raw)
			}
		})
		if _, err := k.Provide(t.Context(), games); err == nil {
			t.Error("there is a key all the same")
		}
	}
}

func TestANamespaceGetsItsSecretOnce(t *testing.T) {
	t.Parallel()
	c := newCluster()
	k := c.replica()
	if _, err := k.Provide(t.Context(), games); err == nil || c.creates.Load() != 0 {
		t.Errorf("before there are keys: %v, %d creates", err, c.creates.Load())
	}
	pass(t, k)
	id := provided(t, k)
	provided(t, k)
	if c.creates.Load() != 1 {
		t.Errorf("%d creates for one namespace, want 1", c.creates.Load())
	}
	// Somebody deletes it, and makes another namespace of that name perhaps.
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: games, Name: SecretName(id)}}
	if err := c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	<-c.made // the first one
	c.wait(sureFor)
	provided(t, k)
	select {
	case <-c.made:
	case <-time.After(10 * time.Second):
		t.Fatal("the Secret isn't made again beside a Pod")
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := k.Restore(t.Context(), games, id); err != nil {
			t.Fatal(err)
		}
	}
	c.tokenOf(t, id, reporttoken.Pod{Namespace: games})
	if err := k.Restore(t.Context(), games, "another"); !errors.Is(err, ErrUnknown) {
		t.Errorf("a key that there isn't: %v", err)
	}
}

func TestANamespaceThatTakesNoSecretIsTriedSeldom(t *testing.T) {
	t.Parallel()
	c := newCluster()
	k := c.replica()
	pass(t, k)
	c.refuse = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", errors.New("exceeded quota"))
	for range 5 {
		if id, err := k.Provide(t.Context(), games); !apierrors.IsForbidden(err) {
			t.Fatalf("got %q, %v", id, err)
		}
	}
	if c.creates.Load() != 1 {
		t.Errorf("%d tries at once, want 1", c.creates.Load())
	}
	c.refuse = nil
	c.wait(retryAfter)
	provided(t, k)
}
