// Package namespaces limits a program to some of the cluster's namespaces.
package namespaces

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// List are the namespaces that a program is limited to; empty: it isn't.
type List []string

// Parse parses names separated by commas; an empty text is no limit.
func Parse(text string) (List, error) {
	var list List
	if text == "" {
		return nil, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return nil, fmt.Errorf("%q is not the name of a namespace: %s", name, wrong[0])
		}
		list = append(list, name)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%q names no namespace", text)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// Has reports whether a namespace is in the list, or there is no limit.
func (l List) Has(namespace string) bool { return len(l) == 0 || slices.Contains(l, namespace) }

// Cached is a cache's default namespaces; nil, which is all, where there is no limit.
func (l List) Cached() map[string]cache.Config {
	if len(l) == 0 {
		return nil
	}
	cached := make(map[string]cache.Config, len(l))
	for _, namespace := range l {
		cached[namespace] = cache.Config{}
	}
	return cached
}
