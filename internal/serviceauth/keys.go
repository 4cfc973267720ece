package serviceauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/rest"
)

const (
	// refreshEvery is how old the keys get: a key that the cluster has withdrawn is trusted no
	// longer than this.
	refreshEvery = 5 * time.Minute
	// refreshApart bounds how often tokens with unknown keys, which anybody can
	// make, cause a fetch.
	refreshApart = 10 * time.Second
	// retryApart bounds it after a fetch that failed, so that a recovered API server is soon
	// used again.
	retryApart = time.Second
	// fetchTimeout bounds one fetch.
	fetchTimeout = 5 * time.Second
	// maxDocument bounds how much is read of the API server's answers.
	maxDocument = 1 << 20

	discoveryPath = "/.well-known/openid-configuration"
	keysPath      = "/openid/v1/jwks"
)

// Options are which tokens are valid.
type Options struct {
	// Audience is the audience that a token must have.
	Audience string
	// Leeway allows for clocks that differ; from 0 to MaxLeeway.
	Leeway time.Duration
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// New makes a verifier for tokens of the cluster that config connects to. The
// account in config needs the cluster role
// system:service-account-issuer-discovery, which each service account has by
// default.
func New(config *rest.Config, opts Options) (*Verifier, error) {
	if opts.Audience == "" {
		return nil, errors.New("verifying tokens: an audience is needed")
	}
	if opts.Leeway < 0 || opts.Leeway > MaxLeeway {
		return nil, fmt.Errorf("verifying tokens: the leeway must be from 0s to %s", MaxLeeway)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making an HTTP client for the cluster's keys: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("finding the API server's address: %w", err)
	}
	return &Verifier{
		keys:     &keys{client: client, base: strings.TrimSuffix(base.String(), "/"), now: opts.Now},
		cache:    newCache(maxCached),
		audience: opts.Audience,
		leeway:   opts.Leeway,
		now:      opts.Now,
	}, nil
}

// keySet is the cluster's public keys at one time. It is never changed.
type keySet struct {
	issuer string
	byID   map[string][]jose.JSONWebKey
}

// keys fetches the cluster's public keys and keeps the last set.
type keys struct {
	client *http.Client
	base   string
	now    func() time.Time

	set atomic.Pointer[keySet]

	mu sync.Mutex
	// fetching is closed when the fetch under way ends; nil when none is.
	fetching chan struct{}
	tried    time.Time
	failed   error
}

// current is the last set; nil before the first fetch.
func (k *keys) current() *keySet { return k.set.Load() }

// find returns the keys that may have signed a token with this key ID, and fetches them when
// they are not known.
func (k *keys) find(ctx context.Context, id, algorithm string) (*keySet, []jose.JSONWebKey, error) {
	set := k.current()
	if found := set.candidates(id, algorithm); len(found) > 0 {
		return set, found, nil
	}
	if set != nil && id == "" {
		// Kubernetes names the key in each token, so no fetch would help.
		return nil, nil, ErrUnknownKey
	}
	err := k.refresh(ctx, false)
	set = k.current()
	if found := set.candidates(id, algorithm); len(found) > 0 {
		return set, found, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrKeysUnavailable, err)
	}
	return nil, nil, ErrUnknownKey
}

func (s *keySet) candidates(id, algorithm string) []jose.JSONWebKey {
	if s == nil || id == "" {
		return nil
	}
	var found []jose.JSONWebKey
	for _, key := range s.byID[id] {
		if key.Algorithm == "" || key.Algorithm == algorithm {
			found = append(found, key)
		}
	}
	return found
}

// refresh fetches the keys, once for all concurrent callers. Unless always, a recent attempt
// counts as this one.
func (k *keys) refresh(ctx context.Context, always bool) error {
	k.mu.Lock()
	if k.fetching == nil {
		apart := refreshApart
		if k.failed != nil {
			apart = retryApart
		}
		if !always && !k.tried.IsZero() && k.now().Sub(k.tried) < apart {
			defer k.mu.Unlock()
			return k.failed
		}
		k.fetching = make(chan struct{})
		k.tried = k.now()
		// A caller that goes away doesn't cancel the fetch for the others, and its context may
		// not be used any more then (fasthttp reuses them).
		go k.fetchAll() //nolint:contextcheck,gosec // on purpose, see above
	}
	fetching := k.fetching
	k.mu.Unlock()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-fetching:
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed
}

func (k *keys) fetchAll() {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	set, err := k.fetch(ctx)
	if err == nil && !set.equal(k.current()) {
		k.set.Store(set)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed = err
	close(k.fetching)
	k.fetching = nil
}

func (k *keys) fetch(ctx context.Context) (*keySet, error) {
	discovery, err := k.get(ctx, discoveryPath)
	if err != nil {
		return nil, err
	}
	issuer, err := parseDiscovery(discovery)
	if err != nil {
		return nil, err
	}
	document, err := k.get(ctx, keysPath)
	if err != nil {
		return nil, err
	}
	byID, err := parseKeys(document)
	if err != nil {
		return nil, err
	}
	return &keySet{issuer: issuer, byID: byID}, nil
}

func (k *keys) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", path, err)
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking for %s: the API server answered %s", path, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(body) > maxDocument {
		return nil, fmt.Errorf("reading %s: more than %d bytes", path, maxDocument)
	}
	return body, nil
}

// parseDiscovery reads the issuer from an OpenID discovery document.
func parseDiscovery(document []byte) (string, error) {
	var discovery struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(document, &discovery); err != nil {
		return "", fmt.Errorf("reading %s: %w", discoveryPath, err)
	}
	if discovery.Issuer == "" {
		return "", fmt.Errorf("reading %s: it names no issuer", discoveryPath)
	}
	return discovery.Issuer, nil
}

// parseKeys reads the public signing keys from a key set. A key that can't be read, or has
// another use, doesn't affect the others.
func parseKeys(document []byte) (map[string][]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(document, &set); err != nil {
		return nil, fmt.Errorf("reading %s: %w", keysPath, err)
	}
	byID := map[string][]jose.JSONWebKey{}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := json.Unmarshal(raw, &key); err != nil {
			continue
		}
		if key.KeyID == "" || !key.IsPublic() || !key.Valid() || (key.Use != "" && key.Use != "sig") {
			continue
		}
		byID[key.KeyID] = append(byID[key.KeyID], key)
	}
	if len(byID) == 0 {
		return nil, fmt.Errorf("reading %s: no public signing key in it", keysPath)
	}
	return byID, nil
}

// Start refreshes the keys until the context ends, so that the first token doesn't wait and a
// withdrawn key is dropped.
func (v *Verifier) Start(ctx context.Context) error {
	for {
		wait := refreshEvery
		if err := v.keys.refresh(ctx, true); err != nil {
			wait = retryApart
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: each replica verifies tokens.
func (*Verifier) NeedLeaderElection() bool { return false }
