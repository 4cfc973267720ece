package servingcert

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/operator/internal/ownsecret"
)

const host = "operator.system.svc"

func key() types.NamespacedName { return ownsecret.Key("system") }

func installed() (*corev1.Secret, *admissionv1.ValidatingWebhookConfiguration) {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: ownsecret.Name}},
		&admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: WebhookName},
			Webhooks:   []admissionv1.ValidatingWebhook{{Name: "eviction-guard.dormouse.dev"}},
		}
}

func keeper(c client.Client) *Keeper {
	return &Keeper{Client: c, Namespace: "system", Service: "operator"}
}

// pass reconciles, and returns when that is to be done again.
func pass(t *testing.T, k *Keeper) time.Duration {
	t.Helper()
	result, err := k.Reconcile(t.Context(), reconcile.Request{NamespacedName: key()})
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

// trusted checks that what a replica serves with is what the API server trusts.
func trusted(t *testing.T, c client.Client, k *Keeper) *tls.Certificate {
	t.Helper()
	serves, err := k.Current(nil)
	if err != nil {
		t.Fatal(err)
	}
	config := &admissionv1.ValidatingWebhookConfiguration{}
	if err := c.Get(t.Context(), types.NamespacedName{Name: WebhookName}, config); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(config.Webhooks[0].ClientConfig.CABundle) {
		t.Fatalf("the authority is %q", config.Webhooks[0].ClientConfig.CABundle)
	}
	if _, err := serves.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err != nil {
		t.Errorf("the API server doesn't trust it: %v", err)
	}
	return serves
}

func TestReplicasServeWithOneCertificate(t *testing.T) {
	t.Parallel()
	secret, config := installed()
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(secret, config).Build()
	one, two := keeper(c), keeper(c)
	if _, err := one.Current(nil); err == nil {
		t.Error("there is a certificate before the first pass")
	}
	if again := pass(t, one); again < validFor-renewBefore-2*time.Hour || again > validFor-renewBefore {
		t.Errorf("it looks again after %s", again)
	}
	pass(t, two)
	if !trusted(t, c, one).Leaf.Equal(trusted(t, c, two).Leaf) {
		t.Error("two replicas have two certificates")
	}
	// A tool applies the manifests again, and takes the authority out.
	if err := c.Get(t.Context(), types.NamespacedName{Name: WebhookName}, config); err != nil {
		t.Fatal(err)
	}
	config.Webhooks[0].ClientConfig.CABundle = nil
	if err := c.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	pass(t, two)
	trusted(t, c, one)
}

func TestACertificateThatCannotServeIsReplaced(t *testing.T) {
	t.Parallel()
	made := func(name string, age time.Duration) map[string][]byte {
		chain, private, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: name, MaxAge: age})
		if err != nil {
			t.Fatal(err)
		}
		return map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: private, caKey: chain}
	}
	torn := made(host, validFor)
	torn[corev1.TLSPrivateKeyKey] = []byte("torn")
	for name, c := range map[string]struct {
		data map[string][]byte
		kept bool
	}{
		"a good one":               {made(host, validFor), true},
		"one that ends soon":       {made(host, renewBefore), false},
		"one of another Service":   {made("other.system.svc", validFor), false},
		"one whose key is no key":  {torn, false},
		"one without an authority": {map[string][]byte{corev1.TLSCertKey: made(host, validFor)[corev1.TLSCertKey]}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret, config := installed()
			secret.Data = c.data
			world := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(secret, config).Build()
			k := keeper(world)
			pass(t, k)
			now := &corev1.Secret{}
			if err := world.Get(t.Context(), key(), now); err != nil {
				t.Fatal(err)
			}
			if kept := string(now.Data[corev1.TLSCertKey]) == string(c.data[corev1.TLSCertKey]); kept != c.kept {
				t.Errorf("kept %t, want %t", kept, c.kept)
			}
			if !c.kept {
				trusted(t, world, k)
			}
		})
	}
}

// Without its objects the operator goes on: evictions are left to the budgets.
func TestWhatIsNotInstalledIsNoError(t *testing.T) {
	t.Parallel()
	k := keeper(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build())
	pass(t, k)
	secret, _ := installed()
	k = keeper(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(secret).Build())
	pass(t, k)
	if _, err := k.Current(nil); err != nil {
		t.Error(err)
	}
}
