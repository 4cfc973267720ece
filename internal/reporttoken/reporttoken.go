// Package reporttoken makes and verifies the tokens with which sidecars report. A sidecar signs
// its own, with a key that it shares with all others of its namespace and with the operator. So it
// needs no volume, for which kubelet would keep the Pod waiting.
//
// A token is a JWT that names its Pod. It is good for some minutes, and Verify says nothing about
// whether the Pod exists.
package reporttoken

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"dormouse.dev/dormouse/api/wellknown"
)

const (
	// KeyBytes is how long a key is.
	KeyBytes = 32
	// issuer distinguishes these tokens from a cluster's.
	issuer = "dormouse-sidecar"
	// validFor is how long a token is good after it was signed, and before: clocks differ.
	validFor = 5 * time.Minute
	// renewAfter is how long a sidecar uses one. Clocks may differ by the rest of the time.
	renewAfter = 2 * time.Minute
)

// Errors of Verify wrap one of these.
var (
	// ErrMalformed means that this is no token of a sidecar.
	ErrMalformed = errors.New("the report's token is malformed")
	// ErrSignature means that the signature is not the key's.
	ErrSignature = errors.New("the report's token is not signed with the namespace's key: if its Secret isn't the operator's, delete it, and replace the Server")
	// ErrTime means that it was signed too long ago, or is to be signed.
	ErrTime = errors.New("the report's token is more than 5 minutes old, or from the future: do the clocks of the nodes differ?")
)

// Pod is who reports.
type Pod struct{ Namespace, Name, UID string }

// claims are a token's payload.
type claims struct {
	jwt.Claims
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
}

var algorithms = []jose.SignatureAlgorithm{jose.HS256}

// NamespaceKey is a namespace's key, which follows from the cluster's.
func NamespaceKey(cluster []byte, namespace string) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, cluster, nil, "dormouse.dev/report/"+namespace, KeyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive the key of namespace %s: %w", namespace, err)
	}
	return key, nil
}

// Text is a key as it is in a Secret and in a sidecar's environment.
func Text(key []byte) string { return base64.RawURLEncoding.EncodeToString(key) }

// Signer makes one Pod's tokens.
type Signer struct {
	pod    Pod
	signer jose.Signer
	now    func() time.Time

	mu     sync.Mutex
	token  string
	signed time.Time
}

// NewSigner makes a signer with a key, as Text gives it, and the key's ID.
func NewSigner(id, key string, pod Pod) (*Signer, error) {
	secret, err := base64.RawURLEncoding.DecodeString(key)
	if err != nil || len(secret) != KeyBytes {
		return nil, fmt.Errorf("read the key for reports: it isn't %d bytes in base64", KeyBytes)
	}
	opts := (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", id)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: secret}, opts)
	if err != nil {
		return nil, fmt.Errorf("make a signer of reports: %w", err)
	}
	return &Signer{pod: pod, signer: signer, now: time.Now}, nil
}

// Get returns a token that is good for some minutes.
func (s *Signer) Get() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now().Round(0) // by the clock on the wall, which the operator goes by
	if s.token != "" && now.Sub(s.signed) < renewAfter && !now.Before(s.signed) {
		return s.token, nil
	}
	token, err := jwt.Signed(s.signer).Claims(claims{
		Claims:    jwt.Claims{Issuer: issuer, Audience: jwt.Audience{wellknown.TokenAudience}, IssuedAt: jwt.NewNumericDate(now)},
		Namespace: s.pod.Namespace, Pod: s.pod.Name, UID: s.pod.UID,
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign a token for reports: %w", err)
	}
	s.token, s.signed = token, now
	return token, nil
}

// Token is one of a sidecar's own, true or forged.
type Token struct{ signed *jwt.JSONWebToken }

// Parse reads a token; false: it is none of a sidecar's own. No other has its algorithm.
func Parse(token string) (Token, bool) {
	signed, err := jwt.ParseSigned(token, algorithms)
	return Token{signed}, err == nil
}

// Claim is what a token says.
type Claim struct {
	// Pod is whose it is, and Key the ID of the key that signed it.
	Pod Pod
	Key string
	// Expires is until when it is good.
	Expires time.Time
}

// ValidAt reports whether it is good at a time.
func (c Claim) ValidAt(now time.Time) bool {
	return now.Before(c.Expires) && !now.Before(c.Expires.Add(-2*validFor))
}

// longest is how long the name of an object can be, in bytes.
const longest = 253

// named reports whether each of the names could be one.
func named(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return name == "" || len(name) > longest })
}

// Verify returns what the token says. keyOf finds a namespace's key; its error is returned as it is.
func (t Token) Verify(now time.Time, keyOf func(id, namespace string) ([]byte, error)) (Claim, error) {
	if len(t.signed.Headers) != 1 {
		return Claim{}, ErrMalformed
	}
	var c claims
	if err := t.signed.UnsafeClaimsWithoutVerification(&c); err != nil || c.IssuedAt == nil || !named(c.Namespace, c.Pod, c.UID) {
		return Claim{}, ErrMalformed
	}
	id := t.signed.Headers[0].KeyID
	key, err := keyOf(id, c.Namespace)
	if err != nil {
		return Claim{}, err
	}
	// This verifies what was read, and doesn't read it again.
	if err := t.signed.Claims(key); err != nil {
		return Claim{}, ErrSignature
	}
	if c.Issuer != issuer || !c.Audience.Contains(wellknown.TokenAudience) {
		return Claim{}, ErrMalformed
	}
	claim := Claim{Pod{c.Namespace, c.Pod, c.UID}, id, c.IssuedAt.Time().Add(validFor)}
	if !claim.ValidAt(now) {
		return Claim{}, ErrTime
	}
	return claim, nil
}
