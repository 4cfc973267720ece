// Package serviceauth verifies callers' service account tokens without asking the API server
// about each: signatures are checked with the cluster's public keys, which are fetched
// periodically.
//
// It identifies the caller. Whether the caller is authorized, and whether its Pod still exists,
// is up to the calling package. Tokens are never logged, kept or put into an error; the cache
// has only their SHA-256.
package serviceauth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"dormouse.dev/dormouse/internal/tokenfile"
)

// MaxTokenBytes bounds a token.
const MaxTokenBytes = tokenfile.MaxBytes

// MaxLeeway bounds Options.Leeway.
const MaxLeeway = 10 * time.Second

// Errors of Verify wrap one of these.
var (
	// ErrMissing means that there is no bearer token.
	ErrMissing = errors.New("no bearer token")
	// ErrTooLarge means that the token has more than MaxTokenBytes.
	ErrTooLarge = errors.New("the token is too large")
	// ErrMalformed means that this is no signed token.
	ErrMalformed = errors.New("the token is malformed")
	// ErrAlgorithm means that the token's signature algorithm isn't accepted.
	ErrAlgorithm = errors.New("the token's algorithm is not allowed")
	// ErrUnknownKey means that the cluster has no such key.
	ErrUnknownKey = errors.New("the token's key is not the cluster's")
	// ErrSignature means that the signature is not the key's.
	ErrSignature = errors.New("the token's signature is wrong")
	// ErrIssuer means that another cluster issued the token.
	ErrIssuer = errors.New("the token's issuer is not this cluster")
	// ErrAudience means that the token is meant for somebody else.
	ErrAudience = errors.New("the token is for another audience")
	// ErrExpired means that the token has expired, or that it has no expiry.
	ErrExpired = errors.New("the token has expired")
	// ErrNotYetValid means that the token's time has not begun.
	ErrNotYetValid = errors.New("the token is not valid yet")
	// ErrNotServiceAccount means that the token is not a service account's.
	ErrNotServiceAccount = errors.New("the token is not a service account's")
	// ErrKeysUnavailable means that the cluster's keys could not be fetched: the token may be
	// valid, and the caller should try again.
	ErrKeysUnavailable = errors.New("the cluster's keys can't be fetched")
)

// algorithms are those with which only the holder of a private key can sign. With HMAC a public
// key would serve as the secret.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512,
	jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512,
	jose.EdDSA,
}

// Identity is a token's owner.
type Identity struct {
	// Namespace and ServiceAccount name the service account.
	Namespace, ServiceAccount string
	// PodName and PodUID are the Pod that the token is bound to; empty where it is bound to
	// none.
	PodName, PodUID string
	// Expires is when the token expires.
	Expires time.Time
	// ReportKey is the ID of the key for reports that signed the token; empty where it is a
	// service account's.
	ReportKey string
}

// Account is the service account as namespace/name.
func (i Identity) Account() string { return i.Namespace + "/" + i.ServiceAccount }

// claims are the parts of a token's payload that are checked.
type claims struct {
	Issuer     string           `json:"iss"`
	Subject    string           `json:"sub"`
	Audience   jwt.Audience     `json:"aud"`
	Expiry     *jwt.NumericDate `json:"exp"`
	NotBefore  *jwt.NumericDate `json:"nbf"`
	Kubernetes struct {
		Namespace      string `json:"namespace"`
		ServiceAccount named  `json:"serviceaccount"`
		Pod            named  `json:"pod"`
	} `json:"kubernetes.io"`
}

type named struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// BearerToken extracts the token from an Authorization header.
func BearerToken(authorization []byte) (string, error) {
	scheme, token, ok := strings.Cut(string(authorization), " ")
	token = strings.TrimSpace(token)
	if !ok || token == "" || !strings.EqualFold(scheme, "Bearer") {
		return "", ErrMissing
	}
	return token, nil
}

// Verifier verifies tokens. It can be used before Start and concurrently; Start only keeps its
// keys fresh.
type Verifier struct {
	keys     *keys
	cache    *cache
	audience string
	leeway   time.Duration
	now      func() time.Time
}

// Verify returns whose the token is. The error wraps one of this package's. It waits for the
// API server only when the token names an unknown key.
func (v *Verifier) Verify(ctx context.Context, token string) (Identity, error) {
	if token == "" {
		return Identity{}, ErrMissing
	}
	if len(token) > MaxTokenBytes {
		return Identity{}, ErrTooLarge
	}
	now := v.now()
	sum := sha256.Sum256([]byte(token))
	set := v.keys.current()
	if identity, ok := v.cache.get(sum, set, now); ok {
		return identity, nil
	}

	signed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		if unexpected := new(jose.ErrUnexpectedSignatureAlgorithm); errors.As(err, &unexpected) {
			return Identity{}, ErrAlgorithm
		}
		return Identity{}, ErrMalformed
	}
	header := signed.Signatures[0].Protected
	set, candidates, err := v.keys.find(ctx, header.KeyID, header.Algorithm)
	if err != nil {
		return Identity{}, err
	}
	payload, err := verifyWithAny(signed, candidates)
	if err != nil {
		return Identity{}, err
	}
	identity, err := v.check(payload, set.issuer, now)
	if err != nil {
		return Identity{}, err
	}
	v.cache.add(sum, set, identity, identity.Expires.Add(v.leeway))
	return identity, nil
}

func verifyWithAny(signed *jose.JSONWebSignature, candidates []jose.JSONWebKey) ([]byte, error) {
	for i := range candidates {
		if payload, err := signed.Verify(candidates[i].Key); err == nil {
			return payload, nil
		}
	}
	return nil, ErrSignature
}

// check checks the payload of a token with a valid signature.
func (v *Verifier) check(payload []byte, issuer string, now time.Time) (Identity, error) {
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil {
		return Identity{}, ErrMalformed
	}
	switch {
	case c.Issuer != issuer:
		return Identity{}, ErrIssuer
	case !slices.Contains(c.Audience, v.audience):
		return Identity{}, ErrAudience
	case c.Expiry == nil, !now.Before(c.Expiry.Time().Add(v.leeway)):
		return Identity{}, ErrExpired
	case c.NotBefore != nil && now.Add(v.leeway).Before(c.NotBefore.Time()):
		return Identity{}, ErrNotYetValid
	}
	k := c.Kubernetes
	if k.Namespace == "" || k.ServiceAccount.Name == "" ||
		c.Subject != fmt.Sprintf("system:serviceaccount:%s:%s", k.Namespace, k.ServiceAccount.Name) {
		return Identity{}, ErrNotServiceAccount
	}
	return Identity{
		Namespace:      k.Namespace,
		ServiceAccount: k.ServiceAccount.Name,
		PodName:        k.Pod.Name,
		PodUID:         k.Pod.UID,
		Expires:        c.Expiry.Time(),
	}, nil
}
