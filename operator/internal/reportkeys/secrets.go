package reportkeys

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reporttoken"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=create

const (
	// KeyData is where the key is in a namespace's Secret.
	KeyData = "key"
	// retryAfter is how long a namespace where no Secret can be made isn't tried again.
	retryAfter = time.Minute
	// sureFor is how long a Secret that was made is taken to be there. Then it is made again
	// beside the next Pod, because its namespace may be another of that name.
	sureFor = time.Minute
	// createTime bounds that.
	createTime = 10 * time.Second
	// mostNamespaces bounds those that are remembered.
	mostNamespaces = 20_000
)

// made remembers in which namespaces there is a Secret.
type made struct {
	mu sync.Mutex
	in map[string]attempt
}

// attempt is the last try to make a namespace's Secret.
type attempt struct {
	id     string
	at     time.Time
	failed error
}

func (m *made) note(namespace string, a attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.in == nil || len(m.in) >= mostNamespaces {
		m.in = map[string]attempt{}
	}
	m.in[namespace] = a
}

// SecretName is the name of a namespace's Secret with its key of a rotation.
func SecretName(id string) string { return "dormouse-report-key-" + id }

// Provide returns the ID of the key for new Pods of a namespace, once that has a Secret with it.
// An error is why it has none: such Pods do without.
func (k *Keeper) Provide(ctx context.Context, namespace string) (id string, err error) {
	current := k.current.Load()
	if current == nil || len(current.ring) == 0 {
		return "", fmt.Errorf("%w yet", errUnreadable)
	}
	id = current.ring[len(current.ring)-1].ID
	k.made.mu.Lock()
	last, tried := k.made.in[namespace]
	k.made.mu.Unlock()
	switch age := k.Now().Sub(last.at); {
	case tried && last.failed != nil && age < retryAfter:
		return "", last.failed
	case tried && last.failed == nil && last.id == id && age < sureFor:
		return id, nil
	case tried && last.failed == nil && last.id == id:
		// A player may wait for the Pod, which needs the Secret later than it needs to be made.
		k.made.note(namespace, attempt{id: id, at: k.Now()})
		go k.makeBeside(context.WithoutCancel(ctx), namespace, id)
		return id, nil
	}
	if err := k.Restore(ctx, namespace, id); err != nil {
		return "", err
	}
	return id, nil
}

// makeBeside makes a namespace's Secret while its Pod is made. A Pod that comes before it waits,
// and a pass of its Server finds out why.
func (k *Keeper) makeBeside(ctx context.Context, namespace, id string) {
	defer utilruntime.HandleCrash()
	ctx, cancel := context.WithTimeout(ctx, createTime)
	defer cancel()
	_ = k.Restore(ctx, namespace, id) // what failed is remembered
}

// Restore makes a namespace's Secret with the key of a rotation, unless it is there.
func (k *Keeper) Restore(ctx context.Context, namespace, id string) error {
	err := k.create(ctx, namespace, id)
	k.made.note(namespace, attempt{id: id, at: k.Now(), failed: err})
	return err
}

func (k *Keeper) create(ctx context.Context, namespace, id string) error {
	key, err := k.keys().of(id, namespace)
	if err != nil {
		return err
	}
	err = k.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: SecretName(id), Labels: map[string]string{"app.kubernetes.io/managed-by": wellknown.ManagedBy},
		},
		Immutable: new(true),
		Data:      map[string][]byte{KeyData: []byte(reporttoken.Text(key))},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Secret %s/%s, with which sidecars sign their reports: %w", namespace, SecretName(id), err)
	}
	return nil
}
