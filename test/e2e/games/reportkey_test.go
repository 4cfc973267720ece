package games

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reporttoken"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// keyOf is the key of a Server's Pod: its ID, and what is in the namespace's Secret.
func keyOf(ctx context.Context, t *testing.T, s *v1alpha1.Server) (id, key string, pod *corev1.Pod) {
	t.Helper()
	pod = podOf(s)
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	id = pod.Annotations[wellknown.ReportKeyAnnotation]
	secret := &corev1.Secret{}
	if err := suite.Cluster.Client.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: "dormouse-report-key-" + id}, secret); err != nil {
		t.Fatalf("the Secret of key %q: %v", id, err)
	}
	return id, string(secret.Data["key"]), pod
}

// signed is a token that somebody signs who has a key.
func signed(t *testing.T, id, key string, pod reporttoken.Pod) string {
	t.Helper()
	signer, err := reporttoken.NewSigner(id, key, pod)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signer.Get()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A sidecar reports with a key that only it has, without a volume, and the key is good for no
// Server of another namespace.
func TestASidecarReportsWithItsKey(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	_, elsewhere := suite.Namespace(t)
	s, other := playing(ctx, t, ns, suite.Cluster.ServerSpec()), playing(ctx, t, elsewhere, suite.Cluster.ServerSpec())
	id, key, pod := keyOf(ctx, t, s)
	if len(pod.Spec.Volumes) > 0 {
		t.Errorf("the Pod has the volumes %+v, for which it waited", pod.Spec.Volumes)
	}
	game, err := suite.Cluster.Container(*pod)
	if err != nil {
		t.Fatal(err)
	}
	sidecar, err := suite.Cluster.Sidecar(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	has := func(of interface{ Environment() ([]string, error) }) bool {
		t.Helper()
		environment, err := of.Environment()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(environment, func(v string) bool { return strings.Contains(v, key) })
	}
	if !has(sidecar) || has(game) {
		t.Errorf("the sidecar has the key: %t, the game: %t; want only the sidecar", has(sidecar), has(game))
	}

	_, _, podOfOther := keyOf(ctx, t, other)
	mine := reporttoken.Pod{Namespace: ns, Name: pod.Name, UID: string(pod.UID)}
	theirs := reporttoken.Pod{Namespace: elsewhere, Name: podOfOther.Name, UID: string(podOfOther.UID)}
	for name, c := range map[string]struct {
		token string
		code  int
	}{
		"another namespace's Server":  {signed(t, id, key, theirs), http.StatusUnauthorized},
		"a Pod that was there before": {signed(t, id, key, reporttoken.Pod{Namespace: ns, Name: pod.Name, UID: "earlier"}), http.StatusUnauthorized},
		"a key that there isn't":      {signed(t, "other", key, mine), http.StatusUnauthorized},
		"its own Pod":                 {signed(t, id, key, mine), http.StatusOK},
	} {
		if code, body := report(ctx, t, "lobby", c.token); code != c.code {
			t.Errorf("as %s: answered %d %s, want %d", name, code, body, c.code)
		}
	}
	now := &v1alpha1.Server{}
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(other), now); err != nil {
		t.Fatal(err)
	}
	if now.Status.Players != nil && now.Status.Players.Current == 99 {
		t.Error("a stranger has reported for another namespace's Server")
	}
}

// A Secret that somebody deletes comes back with the next Pod that needs it, and a key that has
// had its time, for new Pods alone.
func TestAKeyComesBackAndRotates(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	before := playing(ctx, t, ns, suite.Cluster.ServerSpec())
	id, _, pod := keyOf(ctx, t, before)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "dormouse-report-key-" + id}}
	if err := suite.Cluster.Client.Delete(ctx, secret); err != nil {
		t.Fatal(err)
	}
	// On another node: kubelet keeps an immutable Secret in memory while a Pod of its node has it.
	spec := suite.Cluster.ServerSpec()
	spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: otherNode(ctx, t, pod.Spec.NodeName)}
	first := another(ctx, t, ns, "first", spec)
	if got, _, _ := keyOf(ctx, t, first); got != id {
		t.Errorf("the next Server has key %s, want %s as the one before", got, id)
	}

	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: env.SystemNamespace, Name: "dormouse-operator"}}
	now := time.Now().UTC().Format(time.RFC3339)
	patch := []byte(`{"metadata":{"annotations":{"` + wellknown.RotateReportKeysAnnotation + `":"` + now + `"}}}`)
	if err := suite.Cluster.Client.Patch(ctx, own, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	// Not before each replica has seen that.
	n := 0
	err := env.WaitUntil(ctx, "a new Server has another key", func(ctx context.Context) (bool, error) {
		n++
		got, _, _ := keyOf(ctx, t, another(ctx, t, ns, fmt.Sprintf("next-%d", n), suite.Cluster.ServerSpec()))
		return got != id, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// The first one still reports.
	setPlayers(ctx, t, first, 2)
}

// otherNode is the name of a node that isn't this one.
func otherNode(ctx context.Context, t *testing.T, node string) string {
	t.Helper()
	var list corev1.NodeList
	if err := suite.Cluster.Client.List(ctx, &list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if name := list.Items[i].Name; name != node {
			return name
		}
	}
	t.Fatal("there is no other node")
	return ""
}
