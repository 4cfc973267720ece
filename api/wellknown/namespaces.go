package wellknown

import "strings"

// NamesNamespace reports whether an annotation's value, names of namespaces with commas between
// them or * for all, names a namespace.
func NamesNamespace(value, namespace string) bool {
	for name := range strings.SplitSeq(value, ",") {
		if name = strings.TrimSpace(name); name == namespace || name == "*" {
			return true
		}
	}
	return false
}
