package serviceauth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

const (
	issuer   = "https://kubernetes.default.svc"
	audience = "dormouse.dev"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// cluster is an API server as far as tokens go.
type cluster struct {
	*httptest.Server
	keys    atomic.Pointer[jose.JSONWebKeySet]
	fetches atomic.Int32
	down    atomic.Bool
}

func newCluster(t testing.TB, keys ...jose.JSONWebKey) *cluster {
	c := &cluster{}
	c.keys.Store(&jose.JSONWebKeySet{Keys: keys})
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		switch r.URL.Path {
		case discoveryPath:
			c.fetches.Add(1)
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": issuer, "jwks_uri": "https://elsewhere.example"})
		case keysPath:
			_ = json.NewEncoder(w).Encode(c.keys.Load())
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(0, c.at.Load()) }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

func newVerifier(t testing.TB, c *cluster, leeway time.Duration) (*Verifier, *clock) {
	now := &clock{}
	now.at.Store(epoch.UnixNano())
	v, err := New(&rest.Config{Host: c.URL}, Options{Audience: audience, Leeway: leeway, Now: now.now})
	if err != nil {
		t.Fatal(err)
	}
	return v, now
}

func newRSA(t testing.TB) *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func public(id string, key any) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key, KeyID: id, Use: "sig"}
}

type payload map[string]any

func good() payload {
	return payload{
		"iss": issuer,
		"sub": "system:serviceaccount:dormouse-system:dormouse-resolver",
		"aud": []string{audience},
		"exp": epoch.Add(time.Hour).Unix(),
		"nbf": epoch.Add(-time.Minute).Unix(),
		"iat": epoch.Add(-time.Minute).Unix(),
		"kubernetes.io": payload{
			"namespace":      "dormouse-system",
			"serviceaccount": payload{"name": "dormouse-resolver", "uid": "s-1"},
			"pod":            payload{"name": "dormouse-resolver-0", "uid": "p-1"},
		},
	}
}

func (p payload) with(key string, value any) payload {
	if value == nil {
		delete(p, key)
	} else {
		p[key] = value
	}
	return p
}

func sign(t testing.TB, algorithm jose.SignatureAlgorithm, id string, key any, p payload) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key},
		(&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(map[string]any(p)).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func raw(header, body, signature string) string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(header)) + "." + enc([]byte(body)) + "." + enc([]byte(signature))
}

func TestVerify(t *testing.T) {
	key, foreign := newRSA(t), newRSA(t)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(good())
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, public("k1", &key.PublicKey), public("e1", &curve.PublicKey))

	resolver := Identity{
		Namespace: "dormouse-system", ServiceAccount: "dormouse-resolver",
		PodName: "dormouse-resolver-0", PodUID: "p-1", Expires: epoch.Add(time.Hour),
	}
	unbound := resolver
	unbound.PodName, unbound.PodUID = "", ""
	rs := func(p payload) string { return sign(t, jose.RS256, "k1", key, p) }
	goodToken := rs(good())

	cases := map[string]struct {
		token   string
		leeway  time.Duration
		want    Identity
		wantErr error
	}{
		"a resolver's token is good":                 {token: goodToken, want: resolver},
		"one signed with an elliptic curve too":      {token: sign(t, jose.ES256, "e1", curve, good()), want: resolver},
		"one audience of several is enough":          {token: rs(good().with("aud", []string{"x", audience})), want: resolver},
		"an audience that is a string is read":       {token: rs(good().with("aud", audience)), want: resolver},
		"no token at all":                            {token: "", wantErr: ErrMissing},
		"text":                                       {token: "hello", wantErr: ErrMalformed},
		"dots name no algorithm":                     {token: "..", wantErr: ErrAlgorithm},
		"a payload that is no JSON":                  {token: signRaw(t, key, "not json"), wantErr: ErrMalformed},
		"oversized":                                  {token: strings.Repeat("a", MaxTokenBytes+1), wantErr: ErrTooLarge},
		"algorithm none":                             {token: raw(`{"alg":"none","kid":"k1"}`, string(body), ""), wantErr: ErrAlgorithm},
		"HS256 with the public key as the secret":    {token: sign(t, jose.HS256, "k1", der, good()), wantErr: ErrAlgorithm},
		"a foreign key under a known name":           {token: sign(t, jose.RS256, "k1", foreign, good()), wantErr: ErrSignature},
		"a foreign key under its own name":           {token: sign(t, jose.RS256, "k9", foreign, good()), wantErr: ErrUnknownKey},
		"no key's name":                              {token: sign(t, jose.RS256, "", key, good()), wantErr: ErrUnknownKey},
		"a known name of a key of another kind":      {token: sign(t, jose.ES256, "k1", curve, good()), wantErr: ErrSignature},
		"a signature with one byte changed":          {token: flipLast(goodToken), wantErr: ErrSignature},
		"another cluster's issuer":                   {token: rs(good().with("iss", "https://other")), wantErr: ErrIssuer},
		"wrong audience":                             {token: rs(good().with("aud", []string{"api"})), wantErr: ErrAudience},
		"no audience":                                {token: rs(good().with("aud", nil)), wantErr: ErrAudience},
		"expired":                                    {token: rs(good().with("exp", epoch.Unix())), wantErr: ErrExpired},
		"expired within the leeway":                  {token: rs(good().with("exp", epoch.Unix())), leeway: MaxLeeway, want: withExpiry(resolver, epoch)},
		"without an end":                             {token: rs(good().with("exp", nil)), wantErr: ErrExpired},
		"not valid yet":                              {token: rs(good().with("nbf", epoch.Add(5*time.Second).Unix())), wantErr: ErrNotYetValid},
		"not valid yet within the leeway":            {token: rs(good().with("nbf", epoch.Add(5*time.Second).Unix())), leeway: MaxLeeway, want: resolver},
		"a user's token":                             {token: rs(good().with("sub", "alice").with("kubernetes.io", nil)), wantErr: ErrNotServiceAccount},
		"a subject that differs from the account":    {token: rs(good().with("sub", "system:serviceaccount:kube-system:admin")), wantErr: ErrNotServiceAccount},
		"a token that is bound to no Pod has no Pod": {token: rs(good().with("kubernetes.io", payload{"namespace": "dormouse-system", "serviceaccount": payload{"name": "dormouse-resolver"}})), want: unbound},
		"a Pod that is a number":                     {token: rs(good().with("kubernetes.io", payload{"pod": 3})), wantErr: ErrMalformed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v, _ := newVerifier(t, c, tc.leeway)
			// The second answer comes from the cache, where there is one.
			for range 2 {
				got, err := v.Verify(t.Context(), tc.token)
				if !errors.Is(err, tc.wantErr) {
					t.Fatalf("error %v, want %v", err, tc.wantErr)
				}
				got.Expires = got.Expires.UTC()
				if err != nil {
					got.Expires = time.Time{}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("identity (-want +got):\n%s", diff)
				}
				if err != nil && tc.token != "" && len(tc.token) > 8 && strings.Contains(err.Error(), tc.token) {
					t.Errorf("the error shows the token")
				}
			}
		})
	}
}

func withExpiry(i Identity, at time.Time) Identity {
	i.Expires = at
	return i
}

func signRaw(t *testing.T, key any, body string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k1"))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// flipLast changes the signature, not its padding bits.
func flipLast(token string) string {
	b := []byte(token)
	i := len(b) - 10
	if b[i] == 'A' {
		b[i] = 'B'
	} else {
		b[i] = 'A'
	}
	return string(b)
}

func TestUnknownKeysAreFetchedAtMostOnceInTenSeconds(t *testing.T) {
	old, rotated := newRSA(t), newRSA(t)
	c := newCluster(t, public("k1", &old.PublicKey))
	v, now := newVerifier(t, c, 0)
	verify := func(id string, key any, want error) {
		t.Helper()
		if _, err := v.Verify(t.Context(), sign(t, jose.RS256, id, key, good())); !errors.Is(err, want) {
			t.Fatalf("error %v, want %v", err, want)
		}
	}
	verify("k1", old, nil)
	c.keys.Store(&jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public("k1", &old.PublicKey), public("k2", &rotated.PublicKey)}})
	for range 5 {
		verify("k2", rotated, ErrUnknownKey)
	}
	if got := c.fetches.Load(); got != 1 {
		t.Errorf("%d fetches within 10 s, want 1", got)
	}
	now.advance(refreshApart)
	verify("k2", rotated, nil)
	verify("k1", old, nil)
	if got := c.fetches.Load(); got != 2 {
		t.Errorf("%d fetches, want 2", got)
	}
}

func TestKnownKeysNeedNoAPIServer(t *testing.T) {
	key := newRSA(t)
	c := newCluster(t, public("k1", &key.PublicKey))
	v, now := newVerifier(t, c, 0)
	if _, err := v.Verify(t.Context(), sign(t, jose.RS256, "k1", key, good())); err != nil {
		t.Fatal(err)
	}
	c.down.Store(true)
	now.advance(time.Minute)
	other := good().with("jti", "another token")
	if _, err := v.Verify(t.Context(), sign(t, jose.RS256, "k1", key, other)); err != nil {
		t.Errorf("a known key with the API server down: %v", err)
	}
	if _, err := v.Verify(t.Context(), sign(t, jose.RS256, "k2", key, good())); !errors.Is(err, ErrKeysUnavailable) {
		t.Errorf("an unknown key with the API server down: %v, want %v", err, ErrKeysUnavailable)
	}
}

func TestAWithdrawnKeyIsForgotten(t *testing.T) {
	key, next := newRSA(t), newRSA(t)
	c := newCluster(t, public("k1", &key.PublicKey))
	v, _ := newVerifier(t, c, 0)
	token := sign(t, jose.RS256, "k1", key, good())
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	c.keys.Store(&jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public("k2", &next.PublicKey)}})
	if err := v.keys.refresh(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), token); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a token of a withdrawn key: %v, want %v", err, ErrUnknownKey)
	}
}

func TestACachedTokenExpires(t *testing.T) {
	key := newRSA(t)
	c := newCluster(t, public("k1", &key.PublicKey))
	v, now := newVerifier(t, c, 0)
	token := sign(t, jose.RS256, "k1", key, good())
	for range 2 {
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	now.advance(time.Hour)
	if _, err := v.Verify(t.Context(), token); !errors.Is(err, ErrExpired) {
		t.Errorf("after its end: %v, want %v", err, ErrExpired)
	}
}

func TestTheCacheKeepsTheLatestUsed(t *testing.T) {
	c, set := newCache(2), &keySet{}
	sum := func(i byte) tokenSum { return tokenSum{i} }
	until := epoch.Add(time.Hour)
	c.add(sum(1), set, Identity{PodName: "1"}, until)
	c.add(sum(2), set, Identity{PodName: "2"}, until)
	c.get(sum(1), set, epoch)
	c.add(sum(3), set, Identity{PodName: "3"}, until)
	got := map[byte]bool{}
	for i := byte(1); i <= 3; i++ {
		_, got[i] = c.get(sum(i), set, epoch)
	}
	if diff := cmp.Diff(map[byte]bool{1: true, 2: false, 3: true}, got); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

func TestManyCallersShareOneFetch(t *testing.T) {
	key := newRSA(t)
	c := newCluster(t, public("k1", &key.PublicKey))
	v, _ := newVerifier(t, c, 0)
	token := sign(t, jose.RS256, "k1", key, good())
	errs := make(chan error)
	for range 50 {
		go func() {
			_, err := v.Verify(t.Context(), token)
			errs <- err
		}()
	}
	for range 50 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := c.fetches.Load(); got != 1 {
		t.Errorf("%d fetches, want 1", got)
	}
}

func TestACallerWaitsNoLongerThanItsContext(t *testing.T) {
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer slow.Close()
	defer close(release)
	v, err := New(&rest.Config{Host: slow.URL}, Options{Audience: audience})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	token := sign(t, jose.RS256, "k1", newRSA(t), good())
	if _, err := v.Verify(ctx, token); !errors.Is(err, ErrKeysUnavailable) {
		t.Errorf("error %v, want %v", err, ErrKeysUnavailable)
	}
}

func TestKeysThatCannotBeReadDontSpoilTheOthers(t *testing.T) {
	key := newRSA(t)
	good, err := json.Marshal(public("k1", &key.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	secret := `{"kty":"oct","kid":"k2","k":"c2VjcmV0"}`
	encryption, err := json.Marshal(jose.JSONWebKey{Key: &key.PublicKey, KeyID: "k3", Use: "enc"})
	if err != nil {
		t.Fatal(err)
	}
	byID, err := parseKeys(fmt.Appendf(nil, `{"keys":[{"kty":"future"},%s,%s,%s]}`, secret, encryption, good))
	if err != nil {
		t.Fatal(err)
	}
	if len(byID) != 1 || len(byID["k1"]) != 1 {
		t.Errorf("keys %v, want k1 alone", byID)
	}
}

func TestBearerToken(t *testing.T) {
	cases := map[string]struct {
		header, want string
		wantErr      error
	}{
		"a bearer token":           {header: "Bearer abc", want: "abc"},
		"the scheme in lower case": {header: "bearer abc", want: "abc"},
		"no header":                {wantErr: ErrMissing},
		"another scheme":           {header: "Basic abc", wantErr: ErrMissing},
		"a scheme alone":           {header: "Bearer ", wantErr: ErrMissing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := BearerToken([]byte(tc.header))
			if got != tc.want || !errors.Is(err, tc.wantErr) {
				t.Errorf("%q, %v; want %q, %v", got, err, tc.want, tc.wantErr)
			}
		})
	}
}

func FuzzVerify(f *testing.F) {
	key := newRSA(f)
	c := newCluster(f, public("k1", &key.PublicKey))
	v, _ := newVerifier(f, c, 0)
	token := sign(f, jose.RS256, "k1", key, good())
	signed, err := v.Verify(f.Context(), token)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token)
	f.Add(raw(`{"alg":"none"}`, `{}`, ""))
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, candidate string) {
		// Base64 can write the one good token in more than one way.
		if got, err := v.Verify(t.Context(), candidate); err == nil && got != signed {
			t.Errorf("a token that nobody signed is good: %q", candidate)
		}
	})
}

func FuzzKeyDocuments(f *testing.F) {
	f.Add([]byte(`{"issuer":"x"}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"a","n":"AQAB","e":"AQAB"}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		if issuer, err := parseDiscovery(document); err == nil && issuer == "" {
			t.Error("no issuer and no error")
		}
		if byID, err := parseKeys(document); err == nil && len(byID) == 0 {
			t.Error("no keys and no error")
		}
	})
}

func BenchmarkVerifyKnownToken(b *testing.B) {
	key := newRSA(b)
	c := newCluster(b, public("k1", &key.PublicKey))
	v, _ := newVerifier(b, c, 0)
	token := sign(b, jose.RS256, "k1", key, good())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(b.Context(), token); err != nil {
			b.Fatal(err)
		}
	}
}
