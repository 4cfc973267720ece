// Package triggerauth reads what the operator shows to the servers that triggers ask: Secrets
// that users name. They are read one by one, by GET and with a right of their own in each
// namespace, never listed or watched.
//
// Who may write an ElasticService may name any Secret of the namespace and any server. So a Secret
// says itself that it is meant for triggers, by a label, and which servers may see it, by an
// annotation: the operator shows it to nobody else. Who may write those may as well read or
// replace the Secret.
package triggerauth

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/fair"
	"dormouse.dev/dormouse/operator/internal/outbound"
	"dormouse.dev/dormouse/operator/internal/recent"
)

// Keys of a Secret, besides those that headers name. Those that Kubernetes has types for are
// named as there.
const (
	TokenKey    = "token"
	UsernameKey = corev1.BasicAuthUsernameKey
	PasswordKey = corev1.BasicAuthPasswordKey
	CertKey     = corev1.TLSCertKey
	PrivateKey  = corev1.TLSPrivateKeyKey
	CAKey       = corev1.ServiceAccountRootCAKey
)

const (
	// keep is how long a Secret that was read is used. A new token counts within that time.
	keep = 45 * time.Second
	// retryAfter is how long one that can't be used isn't read again.
	retryAfter = 10 * time.Second
	// readTime bounds a GET of the API server.
	readTime = 5 * time.Second
	// maxValue bounds a value that is put into a header, in bytes.
	maxValue = 4 << 10
	// maxAtOnce bounds the Secrets that are read at once, and maxOfNamespace those of a namespace.
	maxAtOnce      = 64
	maxOfNamespace = 8
)

// Access is what is shown to a server, and whom the operator trusts.
type Access struct {
	Header http.Header
	Trust  outbound.Trust
}

// Digest stands for the Access, credentials included.
func (a Access) Digest() [32]byte {
	values := [][]byte{a.Trust.CA, []byte(a.Trust.ServerName), a.Trust.Certificate, a.Trust.Key}
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		values = append(values, []byte(name), []byte(a.Header.Get(name)))
	}
	return outbound.Digest(values...)
}

// Request is what a trigger asks for.
type Request struct {
	Namespace string
	// Server is the URL of a Prometheus; nil: pods of the target are asked.
	Server *url.URL
	TLS    *v1alpha1.TriggerTLS
	Auth   *v1alpha1.TriggerAuth
}

// Reader reads Secrets.
type Reader struct {
	// live reads from the API server: there is no cache of users' Secrets.
	live    client.Reader
	permits *fair.Permits
	secrets recent.Answers[types.NamespacedName, *corev1.Secret]
}

// New makes a Reader that reads from the API server.
func New(live client.Reader) *Reader {
	return &Reader{
		live:    live,
		permits: fair.New(maxAtOnce, maxOfNamespace),
		secrets: recent.Answers[types.NamespacedName, *corev1.Secret]{Keep: keep},
	}
}

// Access finds out what is shown to a server. Its errors are an *outbound.Error or the
// context's.
func (r *Reader) Access(ctx context.Context, q Request) (Access, error) {
	a := Access{Header: http.Header{}}
	if q.TLS != nil {
		a.Trust = outbound.Trust{CA: q.TLS.CABundle, ServerName: q.TLS.ServerName}
	}
	if q.Auth == nil {
		return a, nil
	}
	key := types.NamespacedName{Namespace: q.Namespace, Name: q.Auth.Secret}
	read := func(ctx context.Context) (*corev1.Secret, error) { return r.read(ctx, key) }
	secret, err := r.secrets.Get(ctx, key, time.Now().Add(-keep), read)
	if err != nil {
		// Somebody may have mended it.
		secret, err = r.secrets.Get(ctx, key, time.Now().Add(-retryAfter), read)
	}
	if err != nil {
		return Access{}, err //nolint:wrapcheck // it is a sentence
	}
	if err := mayBeShown(secret, q.Server); err != nil {
		return Access{}, err
	}
	if err := mayBeCalled(secret, q.Server, a.Trust.ServerName); err != nil {
		return Access{}, err
	}
	return a, a.add(secret, q.Auth)
}

// read reads a Secret that is meant for triggers.
func (r *Reader) read(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	if err := r.permits.Acquire(ctx, key.Namespace); err != nil {
		return nil, outbound.Failure(outbound.BadSecret, "Secret %s can't be read: its turn didn't come within %s, as too many Secrets are read", key, readTime)
	}
	defer r.permits.Release(key.Namespace)
	secret := &corev1.Secret{}
	err := r.live.Get(ctx, key, secret)
	switch {
	case apierrors.IsForbidden(err):
		return nil, outbound.Failure(outbound.BadSecret,
			"The operator may not read Secret %s: apply config/trigger-secrets to its namespace, with the Secret's name", key)
	case apierrors.IsNotFound(err):
		return nil, outbound.Failure(outbound.BadSecret, "There is no Secret %s: create it, or correct auth.secret", key)
	case err != nil:
		return nil, outbound.Failure(outbound.BadSecret, "Secret %s can't be read: %v", key, err)
	case secret.Labels[wellknown.TriggerAuthLabel] != "true":
		// Nothing of it is kept.
		return nil, outbound.Failure(outbound.BadSecret, `Secret %s isn't meant for triggers: give it the label %s: "true"`, key, wellknown.TriggerAuthLabel)
	}
	return secret, nil
}

// mayBeShown returns why a Secret may not be shown to a server, or to pods.
func mayBeShown(secret *corev1.Secret, server *url.URL) error {
	named, has := secret.Annotations[wellknown.TriggerServersAnnotation]
	if server == nil {
		if has {
			return outbound.Failure(outbound.BadSecret, "Secret %s/%s is for the servers in its annotation %s, and isn't shown to pods: name another one",
				secret.Namespace, secret.Name, wellknown.TriggerServersAnnotation)
		}
		return nil
	}
	for word := range strings.SplitSeq(named, ",") {
		if u, err := url.Parse(strings.TrimSpace(word)); err == nil && u.Host != "" && origin(u) == origin(server) {
			return nil
		}
	}
	return outbound.Failure(outbound.BadSecret, "Secret %s/%s may not be shown to %s: add that to its annotation %s",
		secret.Namespace, secret.Name, origin(server), wellknown.TriggerServersAnnotation)
}

// mayBeCalled returns why a server may not prove itself by a name other than its URL's: who may
// write the ElasticService could else name one whose certificate is theirs. Pods have no names.
func mayBeCalled(secret *corev1.Secret, server *url.URL, name string) error {
	if server == nil || name == "" || strings.EqualFold(name, server.Hostname()) {
		return nil
	}
	for word := range strings.SplitSeq(secret.Annotations[wellknown.TriggerServersAnnotation], ",") {
		if u, err := url.Parse(strings.TrimSpace(word)); err == nil && u.Scheme == "https" && strings.EqualFold(u.Hostname(), name) {
			return nil
		}
	}
	return outbound.Failure(outbound.BadSecret, "Secret %s/%s may not be shown to a server with the certificate of %s: remove tls.serverName, or add https://%s to its annotation %s",
		secret.Namespace, secret.Name, name, name, wellknown.TriggerServersAnnotation)
}

// origin is a URL's scheme, host and port.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// add adds what a Secret has.
func (a *Access) add(secret *corev1.Secret, auth *v1alpha1.TriggerAuth) error {
	wrong := func(what string) error {
		return outbound.Failure(outbound.BadSecret, "Secret %s/%s %s", secret.Namespace, secret.Name, what)
	}
	has := func(key string) bool { return len(secret.Data[key]) > 0 }
	if has(CAKey) {
		// Whom to show the Secret is for its owner to say.
		a.Trust.CA = secret.Data[CAKey]
	}
	switch {
	case has(TokenKey) && (has(UsernameKey) || has(PasswordKey)):
		return wrong("has a token and a username: remove one of them")
	case has(UsernameKey) != has(PasswordKey):
		return wrong("has only one of username and password: add the other")
	case has(CertKey) != has(PrivateKey):
		return wrong("has only one of tls.crt and tls.key: add the other")
	case !has(TokenKey) && !has(UsernameKey) && !has(CertKey) && !has(CAKey) && len(auth.Headers) == 0:
		return wrong("has nothing to show: it needs a key token, or username and password, or tls.crt and tls.key")
	}
	a.Trust.Certificate, a.Trust.Key = secret.Data[CertKey], secret.Data[PrivateKey]
	for _, h := range auth.Headers {
		if !has(h.Key) {
			return wrong("has nothing under " + strconv.Quote(h.Key) + ": add it, or correct auth.headers")
		}
		value, ok := headerValue(secret.Data[h.Key])
		if !ok {
			return wrong("has something under " + strconv.Quote(h.Key) + " that fits into no header: one line of 4 KiB at most")
		}
		a.Header.Set(h.Name, value)
	}
	switch {
	case has(TokenKey):
		token, ok := headerValue(secret.Data[TokenKey])
		if !ok {
			return wrong("has a token that fits into no header: one line of 4 KiB at most")
		}
		a.Header.Set("Authorization", "Bearer "+token)
	case has(UsernameKey):
		// As an http.Request does it.
		r := http.Request{Header: a.Header}
		r.SetBasicAuth(line(secret.Data[UsernameKey]), line(secret.Data[PasswordKey]))
	}
	return nil
}

// line is a value without the line's end that editors leave.
func line(value []byte) string { return strings.TrimRight(string(value), "\r\n") }

// headerValue is a value that can be sent in a header.
func headerValue(value []byte) (string, bool) {
	text := strings.TrimSpace(string(value))
	for _, c := range []byte(text) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return "", false
		}
	}
	return text, text != "" && len(text) <= maxValue
}
