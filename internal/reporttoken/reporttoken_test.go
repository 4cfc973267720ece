package reporttoken

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

var (
	cluster = bytes.Repeat([]byte{7}, KeyBytes)
	lobby   = Pod{"games", "lobby-0", "1-2-3"}
)

// keys are those of a cluster with one key, of ID 1.
func keys() func(id, namespace string) ([]byte, error) {
	errNone := errors.New("there is no such key")
	return func(id, namespace string) ([]byte, error) {
		if id != "1" {
			return nil, errNone
		}
		return NamespaceKey(cluster, namespace)
	}
}

func signerOf(t *testing.T, id, namespace string, pod Pod) *Signer {
	t.Helper()
	key, err := NamespaceKey(cluster, namespace)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSigner(id, Text(key), pod)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tokenOf(t *testing.T, s *Signer) string {
	t.Helper()
	token, err := s.Get()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// verify is whose token it is; one that is none of a sidecar's own is malformed.
func verify(token string, now time.Time) (Claim, error) {
	parsed, ours := Parse(token)
	if !ours {
		return Claim{}, ErrMalformed
	}
	return parsed.Verify(now, keys())
}

func TestASidecarIsKnownByItsToken(t *testing.T) {
	t.Parallel()
	token := tokenOf(t, signerOf(t, "1", "games", lobby))
	now := time.Now()
	got, err := verify(token, now)
	if err != nil || got.Pod != lobby || got.Key != "1" || got.Expires.Sub(now).Round(time.Minute) != validFor {
		t.Errorf("got %+v, %v; want %+v of key 1 for %s", got, err, lobby, validFor)
	}
	if _, err := verify(token, got.Expires.Add(-time.Second)); err != nil {
		t.Errorf("just before it expires: %v", err)
	}
	if _, err := verify(token, got.Expires); !errors.Is(err, ErrTime) {
		t.Errorf("once it has expired: %v", err)
	}
}

func TestWhoHasNotTheKeyCannotReport(t *testing.T) {
	t.Parallel()
	good := tokenOf(t, signerOf(t, "1", "games", lobby))
	none, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS512, Key: bytes.Repeat([]byte{7}, 64)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := jwt.Signed(none).Claims(claims{Namespace: "games", Pod: "lobby-0", UID: "1-2-3"}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		token string
		after time.Duration
		want  error
	}{
		"the key of another namespace": {token: tokenOf(t, signerOf(t, "1", "strangers", lobby)), want: ErrSignature},
		"another algorithm":            {token: other, want: ErrMalformed},
		"no token":                     {token: "games/lobby-0", want: ErrMalformed},
		"a changed signature":          {token: good[:len(good)-2] + "AA", want: ErrSignature},
		"no Pod":                       {token: tokenOf(t, signerOf(t, "1", "games", Pod{Namespace: "games"})), want: ErrMalformed},
		"a name that is too long":      {token: tokenOf(t, signerOf(t, "1", "games", Pod{Namespace: "games", Name: strings.Repeat("a", longest+1), UID: "1"})), want: ErrMalformed},
		"the longest name":             {token: tokenOf(t, signerOf(t, "1", "games", Pod{Namespace: "games", Name: strings.Repeat("a", longest), UID: "1"}))},
		"an old one":                   {token: good, after: 6 * time.Minute, want: ErrTime},
		"one from the future":          {token: good, after: -6 * time.Minute, want: ErrTime},
		"a clock that is behind":       {token: good, after: -4 * time.Minute},
		"one that is in use":           {token: good, after: 4 * time.Minute},
	} {
		if _, err := verify(c.token, time.Now().Add(c.after)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := verify(tokenOf(t, signerOf(t, "2", "games", lobby)), time.Now()); err == nil {
		t.Error("a key that there isn't is accepted")
	}
}

func TestATokenIsRenewedInTime(t *testing.T) {
	t.Parallel()
	s := signerOf(t, "1", "games", lobby)
	now := time.Now()
	s.now = func() time.Time { return now }
	first := tokenOf(t, s)
	now = now.Add(renewAfter - time.Second)
	if tokenOf(t, s) != first {
		t.Error("a token is signed for each report")
	}
	now = now.Add(time.Second)
	if second := tokenOf(t, s); second == first {
		t.Error("a token is used for too long")
	} else if _, err := verify(second, now.Add(validFor-time.Second)); err != nil {
		t.Error(err)
	}
	// The clock was set back.
	now = now.Add(-time.Hour)
	if _, err := verify(tokenOf(t, s), now); err != nil {
		t.Error(err)
	}
}

func TestAKeyThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "short", "not base64 at all, but long enough for a key"} {
		if _, err := NewSigner("1", key, lobby); err == nil {
			t.Errorf("%q is a key", key)
		}
	}
}
