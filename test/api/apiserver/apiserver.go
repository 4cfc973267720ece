// Package apiserver gives the API-level tests a real etcd and kube-apiserver with
// Dormouse's definitions in them. No pod ever runs there.
//
// The programs are found through TEST_ASSET_ETCD and TEST_ASSET_KUBE_APISERVER,
// which "make test-api" sets. Without them the tests fail rather than skip: a
// test that nobody runs says nothing.
package apiserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// config is of the API server that Main has started.
var config *rest.Config

// signingKey is the file with the key that it signs tokens with.
var signingKey string

// Options say what the API server has from the start.
type Options struct {
	// WithoutDefinitions leaves Dormouse's custom resource definitions out.
	WithoutDefinitions bool
	// Beside starts what the tests need besides, and gives what stops it again:
	// told whether the tests failed, it may say what could explain it.
	Beside func(*rest.Config) (stop func(failed bool) error, err error)
}

// serviceRange has addresses of both families for a test's Services.
const serviceRange = "10.0.0.0/16,fd00:10::/108"

// Main is what a package's TestMain calls: it starts the API server, runs the
// tests and stops it. It returns the code to exit with.
func Main(m *testing.M, o Options) int {
	if err := checkAssets(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	environment := &envtest.Environment{ErrorIfCRDPathMissing: true}
	// No test asks etcd to survive a power cut.
	environment.ControlPlane.Etcd = &envtest.Etcd{}
	environment.ControlPlane.Etcd.Configure().Set("unsafe-no-fsync", "true")
	// It need not find its own address, nor tell pods, of which there are none.
	environment.ControlPlane.GetAPIServer().Configure().
		Set("service-cluster-ip-range", serviceRange).
		Set("advertise-address", "127.0.0.1").
		Set("endpoint-reconciler-type", "none").
		// Who keeps an owner from being deleted needs the right to its finalizers.
		Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	if !o.WithoutDefinitions {
		environment.CRDDirectoryPaths = []string{Path("config", "crd", "bases")}
	}
	started, err := environment.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the API server:", errors.Join(err, environment.Stop()))
		return 1
	}
	config = started
	// Where envtest puts it.
	signingKey = filepath.Join(environment.ControlPlane.GetAPIServer().CertDir, "sa-signer.key")
	code := run(m, o)
	if err := environment.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server:", err)
		return max(code, 1)
	}
	return code
}

// run runs the tests with what they need beside the API server.
func run(m *testing.M, o Options) int {
	if o.Beside == nil {
		return m.Run()
	}
	stop, err := o.Beside(rest.CopyConfig(config))
	if err != nil {
		fmt.Fprintln(os.Stderr, "start what the tests need:", err)
		return 1
	}
	code := m.Run()
	if err := stop(code != 0); err != nil {
		fmt.Fprintln(os.Stderr, "stop what the tests needed:", err)
		return max(code, 1)
	}
	return code
}

// Config connects to the API server as its administrator.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	if config == nil {
		t.Fatal("the package's TestMain doesn't call apiserver.Main")
	}
	return rest.CopyConfig(config)
}

// SigningKey is the key, as PEM, with which the API server signs tokens.
func SigningKey(t testing.TB) []byte {
	t.Helper()
	key, err := os.ReadFile(signingKey)
	if err != nil {
		t.Fatalf("read the API server's signing key: %v", err)
	}
	return key
}

// Path is a path below the project's root.
func Path(elements ...string) string {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..", "..")
	return filepath.Join(append([]string{root}, elements...)...)
}

func checkAssets() error {
	var missing []string
	for _, name := range []string{"TEST_ASSET_ETCD", "TEST_ASSET_KUBE_APISERVER"} {
		if _, err := os.Stat(os.Getenv(name)); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("these tests need an API server, and %s names no file: run them with \"make test-api\", or set the variables that \"go run ./hack/testassets\" prints",
		strings.Join(missing, " and "))
}
