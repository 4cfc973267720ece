package abuse

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/util/keyutil"
)

// Tokens are real ones, as the API server gives them, and the key that it signs
// them with: what has expired can't be asked for.
type Tokens struct {
	// Good is of a live resolver pod, for the operator's audience.
	Good string
	// OtherAudience is of the same pod, for somebody else.
	OtherAudience string
	// OtherAccount is for the operator's audience, of another service account.
	OtherAccount string
	// NoPod is of the resolver's account, bound to no pod.
	NoPod string
	// SigningKey is the API server's, as PEM.
	SigningKey []byte
}

// forge makes tokens that differ from a good one in a single thing.
type forge struct {
	signer, stranger jose.Signer
	claims           map[string]any
}

func newForge(t Tokens) (*forge, error) {
	parsed, err := jose.ParseSignedCompact(t.Good, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		return nil, fmt.Errorf("read the good token: %w", err)
	}
	f := &forge{}
	if err := json.Unmarshal(parsed.UnsafePayloadWithoutVerification(), &f.claims); err != nil {
		return nil, fmt.Errorf("read the good token: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(t.SigningKey)
	if err != nil {
		return nil, fmt.Errorf("read the signing key: %w", err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	header := parsed.Signatures[0].Protected
	sign := func(algorithm string, key any, id string) (jose.Signer, error) {
		return jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(algorithm), Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	}
	var errs [2]error
	f.signer, errs[0] = sign(header.Algorithm, key, header.KeyID)
	f.stranger, errs[1] = sign(string(jose.RS256), other, "a-key-of-nobody")
	return f, errors.Join(errs[:]...)
}

// with signs the good token's claims with some of them changed.
func (f *forge) with(signer jose.Signer, change func(claims map[string]any)) (string, error) {
	claims := maps.Clone(f.claims)
	own := maps.Clone(claims["kubernetes.io"].(map[string]any))
	claims["kubernetes.io"] = own
	change(claims)
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encode claims: %w", err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return signed.CompactSerialize()
}

// forged are tokens by what is wrong with them.
func (f *forge) forged(good string) (map[string]string, error) {
	now := time.Now()
	changes := map[string]func(map[string]any){
		"an expired token":       func(c map[string]any) { c["exp"] = now.Add(-time.Minute).Unix() },
		"a token without an end": func(c map[string]any) { delete(c, "exp") },
		"a token of tomorrow":    func(c map[string]any) { c["nbf"] = now.Add(24 * time.Hour).Unix() },
		"another issuer's token": func(c map[string]any) { c["iss"] = "https://issuer.example" },
		"a gone pod's token": func(c map[string]any) {
			c["kubernetes.io"].(map[string]any)["pod"] = map[string]any{"name": "gone", "uid": "gone"}
		},
	}
	tokens := map[string]string{}
	for name, change := range changes {
		token, err := f.with(f.signer, change)
		if err != nil {
			return nil, err
		}
		tokens[name] = token
	}
	strange, err := f.with(f.stranger, func(map[string]any) {})
	if err != nil {
		return nil, err
	}
	tokens["an unknown key's token"] = strange
	// The header and claims of the one with the signature of the other.
	parts, strangers := strings.Split(good, "."), strings.Split(strange, ".")
	tokens["a wrong signature"] = parts[0] + "." + parts[1] + "." + strangers[2]
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	tokens["no signature"] = none + "." + parts[1] + "."
	symmetric := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"a-key-of-nobody"}`))
	tokens["a symmetric signature"] = symmetric + "." + parts[1] + "." + strangers[2]
	return tokens, nil
}

// strangers are many different tokens that are right in all but whose they are.
func (f *forge) strangers(n int) ([]string, error) {
	tokens := make([]string, n)
	for i := range tokens {
		token, err := f.with(f.signer, func(c map[string]any) {
			name := fmt.Sprintf("stranger-%d", i)
			c["sub"] = "system:serviceaccount:default:" + name
			own := c["kubernetes.io"].(map[string]any)
			own["namespace"], own["serviceaccount"] = "default", map[string]any{"name": name, "uid": name}
		})
		if err != nil {
			return nil, err
		}
		tokens[i] = token
	}
	return tokens, nil
}
