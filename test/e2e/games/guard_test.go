package games

import (
	"context"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// occupied makes a Server with players on it.
func occupied(ctx context.Context, t *testing.T, namespace string, spec v1alpha1.ServerSpec) *v1alpha1.Server {
	t.Helper()
	s := playing(ctx, t, namespace, spec)
	setPlayers(ctx, t, s, 2)
	return s
}

// playing makes a Server that is ready.
func playing(ctx context.Context, t *testing.T, namespace string, spec v1alpha1.ServerSpec) *v1alpha1.Server {
	t.Helper()
	return another(ctx, t, namespace, "lobby", spec)
}

// another is playing for a Server beside others.
func another(ctx context.Context, t *testing.T, namespace, name string, spec v1alpha1.ServerSpec) *v1alpha1.Server {
	t.Helper()
	s, err := suite.Cluster.CreateServer(ctx, namespace, name, spec)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = suite.Cluster.WaitState(ctx, client.ObjectKeyFromObject(s), v1alpha1.ServerReady); err != nil {
		t.Fatal(err)
	}
	return s
}

// setPlayers lets so many play, and waits until that is known.
func setPlayers(ctx context.Context, t *testing.T, s *v1alpha1.Server, n int32) {
	t.Helper()
	if err := suite.Cluster.SetPlayers(ctx, s, int(n)); err != nil {
		t.Fatal(err)
	}
	_, err := suite.Cluster.WaitServer(ctx, client.ObjectKeyFromObject(s), "told of its players", func(s *v1alpha1.Server) bool {
		return s.Status.Players != nil && s.Status.Players.Current == n && s.Status.DeletionAllowed == (n == 0)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// deleteServer asks for a Server's deletion and waits until it has been seen.
func deleteServer(ctx context.Context, t *testing.T, s *v1alpha1.Server, opts ...client.DeleteOption) {
	t.Helper()
	if err := suite.Cluster.Client.Delete(ctx, s, opts...); err != nil {
		t.Fatal(err)
	}
}

// stays watches for a while that a Server keeps its Pod, which isn't told to end.
func stays(ctx context.Context, t *testing.T, s *v1alpha1.Server, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		pod := &corev1.Pod{}
		err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(s), pod)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.Fatalf("the Pod of Server %s: %v", s.Name, err)
		case pod.DeletionTimestamp != nil:
			t.Fatalf("the Pod of Server %s is being deleted under its players", s.Name)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func gone(ctx context.Context, t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := suite.Cluster.WaitGone(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
}

// leaving waits until a Server's Pod has been told to end, which one whose sidecar
// is frozen can do only when its grace period is over, and until both are gone.
func leaving(ctx context.Context, t *testing.T, s *v1alpha1.Server) {
	t.Helper()
	if _, err := waitPod(ctx, s, "told to end", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }); err != nil {
		t.Fatal(err)
	}
	gone(ctx, t, s, podOf(s))
}

func podOf(s *v1alpha1.Server) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
}

func patchSpec(ctx context.Context, t *testing.T, s *v1alpha1.Server, change func(*v1alpha1.ServerSpec)) {
	t.Helper()
	now := &v1alpha1.Server{}
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(s), now); err != nil {
		t.Fatal(err)
	}
	changed := now.DeepCopy()
	change(&changed.Spec)
	if err := suite.Cluster.Client.Patch(ctx, changed, client.MergeFrom(now)); err != nil {
		t.Fatal(err)
	}
}

// Scenario 18, each way in which a deleted Server with players stays or goes.
func TestDeletionGuard(t *testing.T) {
	t.Parallel()
	const while = 4 * time.Second
	tests := map[string]struct {
		spec  func(*v1alpha1.ServerSpec)
		after func(ctx context.Context, t *testing.T, s *v1alpha1.Server)
	}{
		"its players leave": {after: func(ctx context.Context, t *testing.T, s *v1alpha1.Server) {
			t.Helper()
			deleteServer(ctx, t, s)
			stays(ctx, t, s, while)
			if err := suite.Cluster.SetPlayers(ctx, s, 0); err != nil {
				t.Fatal(err)
			}
			gone(ctx, t, s, podOf(s))
		}},
		"the game denies it though nobody plays, and then allows it": {after: func(ctx context.Context, t *testing.T, s *v1alpha1.Server) {
			t.Helper()
			allow := func(allowed bool) {
				if err := suite.Cluster.AskSidecar(ctx, s, http.MethodPost, "/allow_delete", map[string]bool{"allowed": allowed}, nil); err != nil {
					t.Fatal(err)
				}
			}
			allow(false)
			if err := suite.Cluster.SetPlayers(ctx, s, 0); err != nil {
				t.Fatal(err)
			}
			deleteServer(ctx, t, s)
			stays(ctx, t, s, while)
			allow(true)
			gone(ctx, t, s, podOf(s))
		}},
		"the foreground policy, which lets the garbage collector have the Pod": {after: func(ctx context.Context, t *testing.T, s *v1alpha1.Server) {
			t.Helper()
			deleteServer(ctx, t, s, client.PropagationPolicy(metav1.DeletePropagationForeground))
			stays(ctx, t, s, while)
			if err := suite.Cluster.SetPlayers(ctx, s, 0); err != nil {
				t.Fatal(err)
			}
			gone(ctx, t, s, podOf(s))
		}},
		"its timeout passes": {
			spec: func(spec *v1alpha1.ServerSpec) { spec.Deletion.Timeout = &metav1.Duration{Duration: 8 * time.Second} },
			after: func(ctx context.Context, t *testing.T, s *v1alpha1.Server) {
				t.Helper()
				deleteServer(ctx, t, s)
				stays(ctx, t, s, while)
				gone(ctx, t, s, podOf(s))
			},
		},
		"it is forced": {after: func(ctx context.Context, t *testing.T, s *v1alpha1.Server) {
			t.Helper()
			deleteServer(ctx, t, s)
			stays(ctx, t, s, while)
			patchSpec(ctx, t, s, func(spec *v1alpha1.ServerSpec) { spec.Deletion.Force = true })
			gone(ctx, t, s, podOf(s))
		}},
		"a person deletes the Pod": {after: func(ctx context.Context, t *testing.T, s *v1alpha1.Server) {
			t.Helper()
			deleteServer(ctx, t, s)
			stays(ctx, t, s, while)
			if err := suite.Cluster.Client.Delete(ctx, podOf(s)); err != nil {
				t.Fatal(err)
			}
			gone(ctx, t, s, podOf(s))
		}},
		"its sidecar can't be heard, and it is forced": {after: func(ctx context.Context, t *testing.T, s *v1alpha1.Server) {
			t.Helper()
			suite.FreezeSidecar(ctx, t, s)
			deleteServer(ctx, t, s)
			stays(ctx, t, s, while)
			patchSpec(ctx, t, s, func(spec *v1alpha1.ServerSpec) { spec.Deletion.Force = true })
			leaving(ctx, t, s)
		}},
		"its sidecar can't be heard, and its timeout passes": {
			spec: func(spec *v1alpha1.ServerSpec) { spec.Deletion.Timeout = &metav1.Duration{Duration: 8 * time.Second} },
			after: func(ctx context.Context, t *testing.T, s *v1alpha1.Server) {
				t.Helper()
				suite.FreezeSidecar(ctx, t, s)
				deleteServer(ctx, t, s)
				stays(ctx, t, s, while)
				leaving(ctx, t, s)
			},
		},
		"its sidecar can't be heard, and its Pod goes": {after: func(ctx context.Context, t *testing.T, s *v1alpha1.Server) {
			t.Helper()
			suite.FreezeSidecar(ctx, t, s)
			deleteServer(ctx, t, s)
			stays(ctx, t, s, while)
			if err := suite.Cluster.Client.Delete(ctx, podOf(s), client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
			gone(ctx, t, s, podOf(s))
		}},
		"the game's own end": {after: func(ctx context.Context, t *testing.T, s *v1alpha1.Server) {
			t.Helper()
			if err := suite.Cluster.AskSidecar(ctx, s, http.MethodPost, "/shutdown", map[string]bool{"shutdown": true}, nil); err != nil {
				t.Fatal(err)
			}
			gone(ctx, t, s, podOf(s))
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, ns := suite.Namespace(t)
			spec := suite.Cluster.ServerSpec()
			if test.spec != nil {
				test.spec(&spec)
			}
			test.after(ctx, t, occupied(ctx, t, ns, spec))
		})
	}
}

// A Server whose sidecar can't be heard stays, for nobody knows who plays there,
// until its owner forces it.
func TestASilentSidecarKeepsItsServer(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	// A game that says nothing, so that it is the sidecar's word alone that misses.
	s := playing(ctx, t, ns, suite.Cluster.ServerSpec())
	stop := suite.FreezeSidecar(ctx, t, s)
	deleteServer(ctx, t, s)
	stays(ctx, t, s, 5*time.Second)
	stop()
	// It speaks again, and nobody plays.
	gone(ctx, t, s, podOf(s))
}

// A stopped Server keeps its name and loses its Pod when its players allow.
func TestAStoppedServerWaitsForItsPlayers(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	s := occupied(ctx, t, ns, suite.Cluster.ServerSpec())
	patchSpec(ctx, t, s, func(spec *v1alpha1.ServerSpec) { spec.Running = new(false) })
	if _, err := suite.Cluster.WaitState(ctx, client.ObjectKeyFromObject(s), v1alpha1.ServerDraining); err != nil {
		t.Fatal(err)
	}
	stays(ctx, t, s, 4*time.Second)
	if err := suite.Cluster.SetPlayers(ctx, s, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitState(ctx, client.ObjectKeyFromObject(s), v1alpha1.ServerStopped); err != nil {
		t.Fatal(err)
	}
	gone(ctx, t, podOf(s))
	patchSpec(ctx, t, s, func(spec *v1alpha1.ServerSpec) { spec.Running = new(true) })
	if _, err := suite.Cluster.WaitState(ctx, client.ObjectKeyFromObject(s), v1alpha1.ServerReady); err != nil {
		t.Fatal(err)
	}
}

// A game that crashes under its players starts again in its Pod, without them.
func TestACrashedGameStartsAgainWithoutPlayers(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	s := occupied(ctx, t, ns, suite.Cluster.ServerSpec())
	pod := podOf(s)
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.AskGame(ctx, s, http.MethodPost, "/crash", nil, nil); err != nil {
		t.Fatal(err)
	}
	// The status speaks of the process before it until the next one has started.
	if _, err := waitPod(ctx, s, "restarted and ready", func(p *corev1.Pod) bool {
		game := gamepod.Status(s, p)
		return p.UID == pod.UID && game != nil && game.RestartCount == 1 && podReady(p)
	}); err != nil {
		t.Fatal(err)
	}
	_, err := suite.Cluster.WaitServer(ctx, client.ObjectKeyFromObject(s), "ready again, and empty", func(s *v1alpha1.Server) bool {
		return s.Status.State == v1alpha1.ServerReady && s.Status.Players != nil && s.Status.Players.Current == 0 && s.Status.DeletionAllowed
	})
	if err != nil {
		t.Fatal(err)
	}
}

// waitPod waits until a Server's Pod is as wanted.
func waitPod(ctx context.Context, s *v1alpha1.Server, what string, done func(*corev1.Pod) bool) (*corev1.Pod, error) {
	return env.Wait(ctx, suite.Cluster, &corev1.PodList{}, client.ObjectKeyFromObject(s), what, done)
}

func metaOf(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
