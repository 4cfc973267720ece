package reportkeys

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"dormouse.dev/dormouse/internal/reporttoken"
)

const (
	// rotateAfter is how long a key is given to new Pods.
	rotateAfter = 90 * 24 * time.Hour
	// mostKeys bounds the keys of earlier rotations. A Pod that is older than all of them can't
	// report any more.
	mostKeys = 64
)

var errUnreadable = errors.New("the keys for reports can't be read")

// ring are the cluster's keys, the newest one last. It is never changed.
type ring []key

// key is the key of one rotation.
type key struct {
	// ID names it, in Secrets and Pods.
	ID string `json:"id"`
	// From is since when new Pods get it.
	From time.Time `json:"from"`
	// Secret is what the namespaces' keys follow from.
	Secret []byte `json:"secret"`
}

// parse reads the ring as it is in the Secret; empty: there are no keys.
func parse(raw []byte) (ring, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var r ring
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, errUnreadable // the error could quote a key
	}
	for _, k := range r {
		if len(validation.IsDNS1123Label(k.ID)) > 0 || len(k.Secret) != reporttoken.KeyBytes {
			return nil, errUnreadable
		}
	}
	return r, nil
}

// has reports whether it has a key.
func (r ring) has(id string) bool {
	return slices.ContainsFunc(r, func(k key) bool { return k.ID == id })
}

// with is the ring with another's keys, too.
func (r ring) with(other ring) ring {
	all := slices.Clone(r)
	for _, k := range other {
		if !r.has(k.ID) {
			all = append(all, k)
		}
	}
	slices.SortStableFunc(all, func(a, b key) int { return cmp.Or(a.From.Compare(b.From), strings.Compare(a.ID, b.ID)) })
	return all[max(0, len(all)-mostKeys):]
}

// rotates is after how long there is to be another key; 0: now. A key that is younger than asked,
// or not revoked, is given to new Pods for rotateAfter.
func (r ring) rotates(now, asked time.Time, revoked []string) time.Duration {
	if len(r) == 0 {
		return 0
	}
	newest := &r[len(r)-1]
	if slices.Contains(revoked, newest.ID) {
		return 0
	}
	left := newest.From.Add(rotateAfter).Sub(now)
	if asked.After(newest.From) {
		left = min(left, asked.Sub(now))
	}
	return max(0, left)
}

// rotated is the ring with another key.
func (r ring) rotated(now time.Time) ring {
	k := key{ID: strings.ToLower(rand.Text()[:10]), From: now.UTC().Round(0), Secret: make([]byte, reporttoken.KeyBytes)}
	_, _ = rand.Read(k.Secret) // it never fails
	next := append(slices.Clone(r), k)
	return next[max(0, len(next)-mostKeys):]
}

// keys are the ring, and which of its keys aren't accepted any more.
type keys struct {
	ring    ring
	revoked []string
}

// of is a namespace's key of a rotation.
func (k *keys) of(id, namespace string) ([]byte, error) {
	i := slices.IndexFunc(k.ring, func(k key) bool { return k.ID == id })
	switch {
	case i < 0:
		return nil, fmt.Errorf("%w (there is no key %q)", ErrUnknown, id)
	case slices.Contains(k.revoked, id):
		return nil, fmt.Errorf("%w (key %s was revoked)", ErrUnknown, id)
	}
	return reporttoken.NamespaceKey(k.ring[i].Secret, namespace) //nolint:wrapcheck // it says all
}
