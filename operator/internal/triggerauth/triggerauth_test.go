package triggerauth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/outbound"
)

// apiServer has one Secret, or an error.
type apiServer struct {
	mu     sync.Mutex
	secret *corev1.Secret
	err    error
	gets   int
	// slow has GETs hang until their context ends, and hanging counts those of a namespace.
	slow    bool
	hanging map[string]int
}

func (s *apiServer) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slow {
		s.hanging[key.Namespace]++
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return ctx.Err()
	}
	s.gets++
	if s.err != nil {
		return s.err
	}
	if key != client.ObjectKeyFromObject(s.secret) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	s.secret.DeepCopyInto(into.(*corev1.Secret))
	return nil
}

func (*apiServer) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("Secrets are never listed")
}

// secret is one that is meant for triggers, of key and value pairs.
func secret(pairs ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: "probe", Labels: map[string]string{wellknown.TriggerAuthLabel: "true"}, Annotations: map[string]string{},
	}, Data: map[string][]byte{}}
	for i := 0; i < len(pairs); i += 2 {
		s.Data[pairs[i]] = []byte(pairs[i+1])
	}
	return s
}

// request asks for the Secret, for pods.
func request(headers ...v1alpha1.TriggerHeader) Request {
	return Request{Namespace: "games", Auth: &v1alpha1.TriggerAuth{Secret: "probe", Headers: headers}}
}

func TestWhatASecretMayNotBe(t *testing.T) {
	t.Parallel()
	header := v1alpha1.TriggerHeader{Name: "X-Key", Key: "key"}
	resource := schema.GroupResource{Resource: "secrets"}
	unlabeled, otherwise, annotated := secret("token", "a"), secret("token", "a"), secret("token", "a")
	unlabeled.Labels = nil
	otherwise.Labels[wellknown.TriggerAuthLabel] = "false"
	annotated.Annotations[wellknown.TriggerServersAnnotation] = ""
	for name, c := range map[string]struct {
		server  *apiServer
		request Request
		want    string
	}{
		"no right to it":              {&apiServer{err: apierrors.NewForbidden(resource, "probe", nil)}, request(), "may not read Secret games/probe: apply config/trigger-secrets"},
		"none":                        {&apiServer{err: apierrors.NewNotFound(resource, "probe")}, request(), "There is no Secret games/probe"},
		"an API server that fails":    {&apiServer{err: errors.New("no route")}, request(), "can't be read: no route"},
		"no label":                    {&apiServer{secret: unlabeled}, request(), `isn't meant for triggers: give it the label dormouse.dev/trigger-auth: "true"`},
		"the label with another word": {&apiServer{secret: otherwise}, request(), "isn't meant for triggers"},
		"one for servers, for pods":   {&apiServer{secret: annotated}, request(), "isn't shown to pods"},
		"nothing in it":               {&apiServer{secret: secret()}, request(), "has nothing to show"},
		"an empty token":              {&apiServer{secret: secret("token", "")}, request(), "has nothing to show"},
		"a token and a user":          {&apiServer{secret: secret("token", "a", "username", "b", "password", "c")}, request(), "has a token and a username"},
		"a user without a password":   {&apiServer{secret: secret("username", "b")}, request(), "has only one of username and password"},
		"a password without a user":   {&apiServer{secret: secret("password", "b")}, request(), "has only one of username and password"},
		"a certificate without a key": {&apiServer{secret: secret("tls.crt", "b")}, request(), "has only one of tls.crt and tls.key"},
		"a header that isn't there":   {&apiServer{secret: secret("token", "a")}, request(header), `has nothing under "key"`},
		"a header of two lines":       {&apiServer{secret: secret("key", "a\r\nHost: b")}, request(header), "fits into no header"},
		"a long header":               {&apiServer{secret: secret("key", strings.Repeat("a", maxValue+1))}, request(header), "fits into no header"},
		"a token of two lines":        {&apiServer{secret: secret("token", "a\nb")}, request(), "has a token that fits into no header"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := New(c.server).Access(t.Context(), c.request)
			if outbound.ReasonOf(err) != outbound.BadSecret || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "Host: b") || len(a.Header) > 0 && a.Header.Get("X-Key") != "" {
				t.Errorf("the value is in %v, %v", err, a.Header)
			}
		})
	}
}

func TestASecretIsForTheServersThatItNames(t *testing.T) {
	t.Parallel()
	s := secret("token", "a")
	s.Annotations[wellknown.TriggerServersAnnotation] = "https://prometheus.example , http://Thanos.example:9090/x"
	r := New(&apiServer{secret: s})
	for server, want := range map[string]bool{
		"https://prometheus.example": true, "https://prometheus.example:443/a/b": true, "https://PROMETHEUS.example": true,
		"http://thanos.example:9090": true, "http://thanos.example": false, "https://thanos.example:9090": false,
		"http://prometheus.example": false, "https://prometheus.example.evil": false, "https://prometheus.example:444": false,
		"https://evil/https://prometheus.example": false,
	} {
		u, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		q := request()
		q.Server = u
		if _, err := r.Access(t.Context(), q); (err == nil) != want {
			t.Errorf("%s: %v", server, err)
		}
	}
}

func TestWhomToTrustIsForTheSecretToSay(t *testing.T) {
	t.Parallel()
	const evil = "evil.example"
	server := &url.URL{Scheme: "https", Host: "prometheus.example:9090"}
	for name, c := range map[string]struct {
		servers string
		tls     v1alpha1.TriggerTLS
		ca      string
		wantCA  string
		wantErr bool
	}{
		"its authority":                      {ca: "own", tls: v1alpha1.TriggerTLS{CABundle: []byte("other")}, wantCA: "own"},
		"another one where it has none":      {tls: v1alpha1.TriggerTLS{CABundle: []byte("other")}, wantCA: "other"},
		"the name of the address":            {tls: v1alpha1.TriggerTLS{ServerName: "Prometheus.example"}},
		"another name":                       {tls: v1alpha1.TriggerTLS{ServerName: evil}, wantErr: true},
		"another name that it has":           {servers: ", https://evil.example", tls: v1alpha1.TriggerTLS{ServerName: evil}},
		"another name that it has for http":  {servers: ", http://evil.example", tls: v1alpha1.TriggerTLS{ServerName: evil}, wantErr: true},
		"a part of another name that it has": {servers: ", https://not.evil.example", tls: v1alpha1.TriggerTLS{ServerName: evil}, wantErr: true},
	} {
		s := secret("token", "a", "ca.crt", c.ca)
		s.Annotations[wellknown.TriggerServersAnnotation] = "https://prometheus.example:9090" + c.servers
		q := request()
		q.Server, q.TLS = server, &c.tls
		a, err := New(&apiServer{secret: s}).Access(t.Context(), q)
		if (err != nil) != c.wantErr || err != nil && (outbound.ReasonOf(err) != outbound.BadSecret || len(a.Header) > 0) || string(a.Trust.CA) != c.wantCA {
			t.Errorf("%s: %q, %v", name, a.Trust.CA, err)
		}
	}
}

func TestASecretIsReadOnceInAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{secret: secret("token", "old")}
		r := New(server)
		var wait sync.WaitGroup
		for range 1000 {
			wait.Go(func() {
				if a, err := r.Access(t.Context(), request()); err != nil || a.Header.Get("Authorization") != "Bearer old" {
					t.Errorf("got %v, %v", a.Header, err)
				}
			})
		}
		wait.Wait()
		if server.gets != 1 {
			t.Errorf("it was read %d times", server.gets)
		}
		before, _ := r.Access(t.Context(), request())
		server.secret = secret("token", "new")
		<-time.After(time.Minute)
		after, err := r.Access(t.Context(), request())
		if err != nil || after.Header.Get("Authorization") != "Bearer new" || server.gets != 2 {
			t.Errorf("a minute later there is %v, %v, read %d times", after.Header, err, server.gets)
		}
		if before.Digest() == after.Digest() {
			t.Error("another token has the same digest")
		}
	})
}

func TestANamespaceReadsFewSecretsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{slow: true, hanging: map[string]int{}}
		r := New(server)
		var wait sync.WaitGroup
		ask := func(namespace, name string) {
			wait.Go(func() {
				q := Request{Namespace: namespace, Auth: &v1alpha1.TriggerAuth{Secret: name}}
				if _, err := r.Access(t.Context(), q); outbound.ReasonOf(err) != outbound.BadSecret {
					t.Errorf("of %s there is %v", name, err)
				}
			})
		}
		for i := range 100 {
			ask("games", fmt.Sprint("s", i))
		}
		synctest.Wait()
		ask("others", "s")
		synctest.Wait()
		server.mu.Lock()
		if n := server.hanging["games"]; n != maxOfNamespace || server.hanging["others"] != 1 {
			t.Errorf("there are %v at once", server.hanging)
		}
		server.mu.Unlock()
		wait.Wait()
	})
}

func TestASecretThatIsMendedIsReadSooner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{err: errors.New("no route"), secret: secret("token", "a")}
		r := New(server)
		for range 100 {
			if _, err := r.Access(t.Context(), request()); err == nil {
				t.Fatal("there is one")
			}
		}
		if server.gets != 1 {
			t.Errorf("it was read %d times", server.gets)
		}
		server.err = nil
		<-time.After(retryAfter + 1)
		if _, err := r.Access(t.Context(), request()); err != nil {
			t.Error(err)
		}
	})
}

func TestWithoutASecretNothingIsRead(t *testing.T) {
	t.Parallel()
	server := &apiServer{err: errors.New("read")}
	a, err := New(server).Access(t.Context(), Request{Namespace: "games", TLS: &v1alpha1.TriggerTLS{CABundle: []byte("ca"), ServerName: "a.example"}})
	if err != nil || string(a.Trust.CA) != "ca" || a.Trust.ServerName != "a.example" || server.gets != 0 {
		t.Errorf("got %v, %v, read %d times", a, err, server.gets)
	}
}
