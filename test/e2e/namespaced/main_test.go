// Package namespaced exchanges Dormouse for the one of config/namespaced, which serves the namespace
// games alone, and puts the other one back. It is a package of its own because all share one Dormouse.
package namespaced

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// games is the namespace that config/namespaced names.
const games = "games"

// nodes is what only config/namespaced has, outside of games.
const nodes = env.Operator + "-nodes"

func TestMain(m *testing.M) { suite.Main(m) }

// limit has Dormouse serve the namespace games alone, and gives its new pods, and when there were none
// of them yet. The rights go first, so that the new pods never have them: who upgrades takes them
// away afterwards, as docs/guide/security.md says.
func limit(ctx context.Context, t *testing.T) (pods []corev1.Pod, since time.Time) {
	t.Helper()
	for _, program := range []string{env.Operator, env.Resolver} {
		remove(ctx, t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: program}})
	}
	since = time.Now()
	if err := suite.Cluster.Overlay(ctx, "namespaced", os.Stderr); err != nil {
		t.Fatalf("deploy config/namespaced: %v", err)
	}
	for _, program := range []string{env.Operator, env.Resolver} {
		found, err := suite.Cluster.ReadyPods(ctx, program)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != 2 {
			t.Fatalf("%d pods of %s are ready once config/namespaced is available, want 2", len(found), program)
		}
		pods = append(pods, found...)
	}
	t.Logf("limited to namespace %s within %s", games, time.Since(since).Round(time.Second))
	return pods, since
}

// putBack deploys the Dormouse that the other packages' tests expect, and waits until nothing of this
// one's is left.
func putBack(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.TestTimeout)
	defer cancel()
	began := time.Now()
	if err := suite.Cluster.Overlay(ctx, "dev", os.Stderr); err != nil {
		t.Errorf("put Dormouse of config/dev back: %v; the next package's tests begin with another attempt", err)
		return
	}
	remove(ctx, t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: nodes}})
	remove(ctx, t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: nodes}})
	// The test has no client left, so that resolvers end as soon as no slice lists them.
	err := env.WaitUntil(ctx, "only the pods of config/dev are left in "+env.SystemNamespace, func(ctx context.Context) (bool, error) {
		var list corev1.PodList
		if err := suite.Cluster.Client.List(ctx, &list, client.InNamespace(env.SystemNamespace)); err != nil {
			return false, err
		}
		for i := range list.Items {
			if pod := &list.Items[i]; !pod.DeletionTimestamp.IsZero() {
				return false, fmt.Errorf("pod %s has been told to end, and is still there", pod.Name)
			}
		}
		return true, nil
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("put back within %s", time.Since(began).Round(time.Second))
}

// remove deletes an object that may be gone already.
func remove(ctx context.Context, t *testing.T, o client.Object) {
	t.Helper()
	if err := suite.Cluster.Client.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("delete %T %s: %v", o, o.GetName(), err)
	}
}
