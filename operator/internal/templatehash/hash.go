// Package templatehash identifies the templates that Servers are created from.
package templatehash

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Of is a hash of a template's Revision. It depends on the fields that are set, and not on how a
// version of the libraries encodes unset ones.
func Of(t v1alpha1.ServerTemplate) string { return OfAny(Revision(t)) }

// OfAny is such a hash of anything that JSON can hold.
func OfAny(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "" // what came from the API server can be encoded
	}
	return ofText(text)
}

// Last remembers the hash of one template. A Fleet's replicas change all the time, and its template
// seldom does: then it is only compared.
type Last struct {
	text [sha256.Size]byte
	hash string
}

// Of is the hash of a template, which is remembered.
func (l *Last) Of(t v1alpha1.ServerTemplate) string {
	t.Spec = RevisionSpec(t.Spec)
	text, err := json.Marshal(t)
	if err != nil {
		return "" // what came from the API server can be encoded
	}
	if sum := sha256.Sum256(text); sum != l.text {
		l.text, l.hash = sum, ofText(text)
	}
	return l.hash
}

// ofText is the hash of a JSON text.
func ofText(text []byte) string {
	var content any
	err := json.Unmarshal(text, &content)
	if err == nil {
		content, _ = pruned(content)
		text, err = json.Marshal(content)
	}
	if err != nil {
		return "" // it was made from what JSON can hold
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// pruned is JSON without its empty parts; false: nothing is left.
func pruned(content any) (any, bool) {
	switch c := content.(type) {
	case nil:
		return nil, false
	case map[string]any:
		for key, value := range c {
			if kept, says := pruned(value); says {
				c[key] = kept
			} else {
				delete(c, key)
			}
		}
		return c, len(c) > 0
	case []any:
		for i, value := range c {
			c[i], _ = pruned(value) // an element's meaning depends on its index
		}
		return c, len(c) > 0
	}
	return content, true
}
