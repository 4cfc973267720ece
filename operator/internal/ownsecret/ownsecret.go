// Package ownsecret names the one Secret that the operator reads: what all its replicas know. It
// comes with the manifests, empty, so that the operator needs a right to this one alone.
package ownsecret

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// +kubebuilder:rbac:groups="",namespace=dormouse-system,resources=secrets,resourceNames=dormouse-operator,verbs=list;watch;update

// Name is the Secret's, in the operator's namespace.
const Name = "dormouse-operator"

// SyncTimeout is how long the cache may take to be filled with it: an operator without a right to
// the Secret does all else.
const SyncTimeout = 100 * 365 * 24 * time.Hour

// Key is the Secret's key; namespace is the operator's.
func Key(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: Name}
}

// Cached is how Secrets are cached: this one alone.
func Cached(namespace string) cache.ByObject {
	return cache.ByObject{
		Namespaces: map[string]cache.Config{namespace: {}}, Field: fields.OneTermEqualSelector("metadata.name", Name),
	}
}

// Set puts a value into the Secret.
func Set(secret *corev1.Secret, key string, value []byte) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[key] = value
}
