package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
