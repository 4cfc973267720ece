package trigger

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/outbound"
	"dormouse.dev/dormouse/operator/internal/triggerauth"
)

// oneSecret is all that the API server has.
type oneSecret struct{ data map[string][]byte }

func (s oneSecret) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{wellknown.TriggerAuthLabel: "true"}},
		Data:       s.data,
	}).DeepCopyInto(into.(*corev1.Secret))
	return nil
}

func (oneSecret) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("Secrets are never listed")
}

// A pod is asked over TLS, by the name that its certificate has, and sees what the Secret has.
func TestAPodIsAskedOverTLSAndWithWhatTheSecretHas(t *testing.T) {
	t.Parallel()
	pod := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer abc" || r.Header.Get("X-Key") != "def" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, "3")
	}))
	pod.Config.ErrorLog = log.New(io.Discard, "", 0)
	pod.StartTLS()
	t.Cleanup(pod.Close)
	host, text, _ := net.SplitHostPort(pod.Listener.Addr().String())
	port, _ := strconv.Atoi(text)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pod.Certificate().Raw})
	auth := &v1alpha1.TriggerAuth{Secret: "probe", Headers: []v1alpha1.TriggerHeader{{Name: "X-Key", Key: "key"}}}
	good := oneSecret{map[string][]byte{"token": []byte("abc"), "key": []byte("def")}}
	// The system's authorities are read once, which takes seconds where the processors are busy.
	if _, err := x509.SystemCertPool(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		tls     *v1alpha1.TriggerTLS
		auth    *v1alpha1.TriggerAuth
		secret  oneSecret
		wantErr string
		reason  outbound.Reason
	}{
		"all of it":           {tls: &v1alpha1.TriggerTLS{CABundle: ca, ServerName: "example.com"}, auth: auth, secret: good},
		"another name":        {tls: &v1alpha1.TriggerTLS{CABundle: ca, ServerName: "other.example"}, auth: auth, secret: good, wantErr: "other.example", reason: outbound.TLS},
		"another authority":   {tls: &v1alpha1.TriggerTLS{ServerName: "example.com"}, auth: auth, secret: good, wantErr: "into caBundle", reason: outbound.TLS},
		"another token":       {tls: &v1alpha1.TriggerTLS{CABundle: ca, ServerName: "example.com"}, auth: auth, secret: oneSecret{map[string][]byte{"token": []byte("x"), "key": []byte("def")}}, wantErr: "answered 403", reason: outbound.BadStatus},
		"a Secret without it": {tls: &v1alpha1.TriggerTLS{CABundle: ca, ServerName: "example.com"}, auth: auth, secret: oneSecret{}, wantErr: `nothing under "key"`, reason: outbound.BadSecret},
		"no TLS":              {auth: auth, secret: good, wantErr: "answered 400", reason: outbound.BadStatus},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := NewPoller(Options{Secrets: triggerauth.New(c.secret)})
			s := Service{Pods: [][]string{{host}}, Triggers: []v1alpha1.Trigger{{Type: v1alpha1.TriggerHTTP, HTTP: &v1alpha1.HTTPTrigger{
				Port: int32(port), Path: "/", Threshold: 4, TLS: c.tls, Auth: c.auth,
			}}}}
			r := p.poll(t.Context(), "games", s, Reading{}, p.now())
			switch {
			case c.wantErr == "" && (r.Err != nil || r.BelowSince.IsZero()):
				t.Errorf("got %+v", r)
			case c.wantErr != "" && (r.Err == nil || !strings.Contains(r.Err.Error(), c.wantErr) || outbound.ReasonOf(r.Err) != c.reason):
				t.Errorf("got %+v (%s), want %q (%s)", r, outbound.ReasonOf(r.Err), c.wantErr, c.reason)
			}
		})
	}
}

// An app that listens in one address family alone is asked there, and each time. What a pod answers is its answer.
func TestAPodIsAskedAtTheAddressThatTakesConnections(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "3")
	}))
	t.Cleanup(pod.Close)
	here, text, _ := net.SplitHostPort(pod.Listener.Addr().String())
	port, _ := strconv.Atoi(text)
	p := NewPoller(Options{})
	ask := func(addresses ...string) Reading {
		s := Service{Pods: [][]string{addresses}, Triggers: []v1alpha1.Trigger{{Type: v1alpha1.TriggerHTTP, HTTP: &v1alpha1.HTTPTrigger{Port: int32(port), Path: "/", Threshold: 4}}}}
		return p.poll(t.Context(), "games", s, Reading{}, p.now())
	}
	for _, addresses := range [][]string{{here, "::1"}, {"::1", here}} {
		if r := ask(addresses...); r.Err != nil || r.BelowSince.IsZero() {
			t.Errorf("at %v: got %+v", addresses, r)
		}
	}
	if r := ask("::1", "127.0.0.2"); r.Err == nil || !strings.Contains(r.Err.Error(), "http://[::1]:") {
		t.Errorf("at no address: got %+v, want the error of the first", r)
	}
	broken.Store(true)
	if r := ask(here, "::1"); r.Err == nil || !strings.Contains(r.Err.Error(), "answered 500") {
		t.Errorf("of a pod that is broken: got %+v", r)
	}
}
