// Package suite is what the end-to-end test packages share: one cluster with
// Dormouse in it, a namespace for each test, and players who count everything.
// Nothing in it reads Dormouse's code beyond its API.
package suite

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/test/env"
)

// Timeouts of what tests wait for.
const (
	setupTimeout = 8 * time.Minute
	// goneTimeout bounds the end of a namespace.
	goneTimeout = 45 * time.Second
	// TestTimeout bounds a test that hangs: a busy machine may take several times as long as an idle one.
	TestTimeout = 10 * time.Minute
	// PlayTimeout likewise bounds a wake: a container's start and kubelet's probe.
	PlayTimeout = time.Minute
)

// Cluster is what the tests run against. Main sets it.
var Cluster *env.Env

// Main brings up the cluster and runs a package's tests.
func Main(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	var err error
	Cluster, err = env.Local(ctx, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bring up the cluster:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Namespace makes a namespace that goes with the test, and gives a context that
// ends before the test's time is up.
func Namespace(t *testing.T) (context.Context, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), TestTimeout)
	t.Cleanup(cancel)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	if err := Cluster.Client.Create(ctx, ns); err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	goesWith(t, ns)
	return ctx, ns.Name
}

// NamespaceCalled makes a namespace of a name that manifests give, which goes with the test. One
// that an earlier test left is waited for until it is gone.
func NamespaceCalled(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	ctx, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	err := env.WaitUntil(ctx, "namespace "+name+" can be made; delete one that is left of a test that was ended", func(ctx context.Context) (bool, error) {
		err := Cluster.Client.Create(ctx, ns)
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	goesWith(t, ns) //nolint:contextcheck // the test's context has ended by then
}

// goesWith describes a namespace when the test has failed, and deletes it.
func goesWith(t *testing.T, ns *corev1.Namespace) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), TestTimeout)
		defer cancel()
		if t.Failed() {
			describe(ctx, t, ns.Name)
		}
		if err := Cluster.Client.Delete(ctx, ns); err != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
}

// describe tells what was there when a test failed.
func describe(ctx context.Context, t *testing.T, namespace string) {
	t.Helper()
	text, err := Cluster.Describe(ctx, namespace)
	if err != nil {
		t.Logf("describe namespace %s: %v", namespace, err)
	}
	t.Log(text)
}
