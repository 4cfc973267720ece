package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestWhatGoesIsSaidByKind(t *testing.T) {
	user := func(kind, namespace string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetKind(kind)
		u.SetNamespace(namespace)
		return u
	}
	got := warning("config/default", []*unstructured.Unstructured{user("Server", "shop"), user("Server", "games"), user("Server", "games"), user("ElasticService", "games"), user("Backup", "games")})
	want := `This removes what config/default has in the cluster, and every object of its kinds:
  1 of kind Backup, in games
  1 of kind ElasticService, in games
  3 of kind Server, in games, shop
Workloads that ElasticServices name are left, and awake. The games of Servers, Fleets and GameTypes end, once nobody plays there.
The archives and VolumeSnapshots of Backups stay.
Type yes to go on: `
	if got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
	want = "This removes what config/default has in the cluster. There is no object of its kinds.\nType yes to go on: "
	if got := warning("config/default", nil); got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
}

func TestNothingIsDeletedWithoutAYes(t *testing.T) {
	for answer, want := range map[string]bool{"yes\n": true, "yes": true, " yes \n": true, "": false, "\n": false, "y\n": false, "no\nyes\n": false} {
		if err := agreed(t.Context(), strings.NewReader(answer)); (err == nil) != want {
			t.Errorf("%q: %v", answer, err)
		}
	}
	// Who interrupts it isn't waited for.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	silent, end := io.Pipe()
	defer func() { _ = end.Close() }()
	if err := agreed(ctx, silent); err == nil {
		t.Error("an interrupt is taken for a yes")
	}
}

// Thousands of objects are thousands of calls. A client that holds them back fails at once where its turn would
// come after the end.
func TestCallsAreNotHeldBack(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			_, _ = io.WriteString(w, `{"kind":"APIVersions","versions":["v1"]}`)
		case "/apis":
			_, _ = io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
		case "/api/v1":
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"namespaces","kind":"Namespace","verbs":["get"]}]}`)
		default:
			_, _ = io.WriteString(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"games"}}`)
		}
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := options{kubeconfig: kubeconfig}.client()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for i := range 200 {
		if err := c.Get(ctx, client.ObjectKey{Name: "games"}, &corev1.Namespace{}); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
}
