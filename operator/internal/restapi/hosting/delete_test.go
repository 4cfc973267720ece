package hosting

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// cluster has the game chess, which is offered, and its server 5, which runs.
func cluster(t *testing.T, funcs interceptor.Funcs) *Hosting {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	gt := gameType(v1alpha1.ServerPort{Name: "game", ContainerPort: 1, Protocol: v1alpha1.ServerProtocolUDP}, v1alpha1.ServerPort{Name: "rcon", ContainerPort: 2, Protocol: v1alpha1.ServerProtocolTCP})
	gt.Labels = map[string]string{wellknown.CatalogLabel: "true"}
	s := buildServer("games", 5, Want{RAM: 1, Disk: 1, Game: "chess"}, gt)
	s.UID, s.Spec.Running, s.Spec.Replicas = "five", new(true), ptr.To[int32](1)
	s.Finalizers = []string{"dormouse.dev/server"}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(gt, s).WithInterceptorFuncs(funcs).WithReturnManagedFields().Build()
	return &Hosting{Client: c, Cached: c, Now: time.Now, Namespace: "games"}
}

func server(t *testing.T, h *Hosting) *v1alpha1.Server {
	t.Helper()
	s := &v1alpha1.Server{}
	if err := h.Client.Get(t.Context(), h.key(5), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func keepsDisk(t *testing.T, s *v1alpha1.Server) {
	t.Helper()
	if s.Spec.Deletion.Force || s.Spec.Storage[0].OnDelete != v1alpha1.StorageRetain {
		t.Errorf("whoever deletes it by other means ends its game at once (%t), and its disk: %s", s.Spec.Deletion.Force, s.Spec.Storage[0].OnDelete)
	}
}

// A deletion that fails leaves nothing behind by which the world would be lost later; and the same
// call again deletes.
func TestADeletionThatFailsKeepsTheDisk(t *testing.T) {
	refused := apierrors.NewInternalError(errors.New("no webhook answers"))
	fails := true
	h := cluster(t, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		if fails {
			return refused
		}
		return c.Delete(ctx, o, opts...)
	}})
	if err := h.Delete(t.Context(), 5, false, true); !errors.Is(err, refused) {
		t.Fatalf("the deletion ended with: %v", err)
	}
	keepsDisk(t, server(t, h))
	fails = false
	if err := h.Delete(t.Context(), 5, false, true); err != nil {
		t.Fatal(err)
	}
	if s := server(t, h); s.DeletionTimestamp.IsZero() || !s.Spec.Deletion.Force || s.Spec.Storage[0].OnDelete != v1alpha1.StorageDelete {
		t.Errorf("it isn't deleted as was asked for: %+v", s)
	}
}

// A deletion whose answer is lost is one, and its disk goes.
func TestADeletionWhoseAnswerIsLostCounts(t *testing.T) {
	h := cluster(t, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		return errors.Join(c.Delete(ctx, o, opts...), errors.New("connection lost"))
	}})
	if err := h.Delete(t.Context(), 5, false, false); err != nil {
		t.Error(err)
	}
	if s := server(t, h); s.DeletionTimestamp.IsZero() || s.Spec.Storage[0].OnDelete != v1alpha1.StorageDelete {
		t.Errorf("it isn't deleted as was asked for: %+v", s)
	}
}

// Another call that comes between a deletion's two writes has the disk stay: the deletion says again that it goes.
func TestADeletionThatAnotherCallInterruptsTakesTheDisk(t *testing.T) {
	var h *Hosting
	interrupts := 1
	h = cluster(t, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		if interrupts > 0 {
			interrupts--
			if err := h.Start(ctx, 5); err != nil {
				t.Error(err)
			}
		}
		var options client.DeleteOptions
		options.ApplyOptions(opts)
		now := &v1alpha1.Server{}
		if err := c.Get(ctx, h.key(5), now); err != nil {
			return err
		}
		if v := options.Preconditions.ResourceVersion; v != nil && *v != now.ResourceVersion {
			return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("servers").GroupResource(), now.Name, errors.New("it was changed"))
		}
		return c.Delete(ctx, o)
	}})
	if err := h.Delete(t.Context(), 5, false, true); err != nil {
		t.Fatal(err)
	}
	if s := server(t, h); s.DeletionTimestamp.IsZero() || !s.Spec.Deletion.Force || s.Spec.Storage[0].OnDelete != v1alpha1.StorageDelete {
		t.Errorf("it isn't deleted as was asked for: %+v", s.Spec)
	}

	h = cluster(t, interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
		return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("servers").GroupResource(), "server-5", errors.New("it was changed"))
	}})
	if err := h.Delete(t.Context(), 5, false, true); !Is(err, Busy) {
		t.Errorf("a deletion that is always interrupted ends with: %v", err)
	}
	keepsDisk(t, server(t, h))
}

// A server that waits for its players is deleted as the first call said. Whoever then wants it otherwise, and isn't
// heard, is told so.
func TestADeletionThatCannotBeChangedIsNoSuccess(t *testing.T) {
	refused := apierrors.NewInternalError(errors.New("no webhook answers"))
	fails := false
	h := cluster(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if fails {
			return refused
		}
		return c.Patch(ctx, o, p, opts...)
	}})
	if err := h.Delete(t.Context(), 5, false, false); err != nil {
		t.Fatal(err)
	}
	fails = true
	if err := h.Delete(t.Context(), 5, true, false); !errors.Is(err, refused) {
		t.Errorf("that its disk is to stay ends with: %v", err)
	}
}

// A server may be gone by the time that a call to make it looks at it: the same call makes it later.
func TestAServerThatGoesWhileItIsMadeIsMadeLater(t *testing.T) {
	gone := apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("servers").GroupResource(), "server-5")
	h := cluster(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, is := o.(*v1alpha1.Server); is {
			return gone
		}
		return c.Get(ctx, key, o, opts...)
	}})
	if _, err := h.Create(t.Context(), 5, Want{RAM: 1, Disk: 1, Game: "chess"}); !Is(err, Busy) {
		t.Errorf("it ends with: %v", err)
	}
}

// Whose caller is gone once it has begun is done all the same; and whose caller was gone before isn't.
func TestADeletionOutlivesItsCaller(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	h := cluster(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			err := c.Patch(ctx, o, p, opts...)
			leave()
			return err
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("nothing bounds how long it takes")
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	if err := h.Delete(ctx, 5, false, true); err != nil {
		t.Error(err)
	}
	if server(t, h).DeletionTimestamp.IsZero() {
		t.Error("it isn't deleted")
	}

	h = cluster(t, interceptor.Funcs{})
	if err := h.Delete(ctx, 5, false, true); !errors.Is(err, context.Canceled) {
		t.Errorf("the deletion of one who is gone ended with: %v", err)
	}
	keepsDisk(t, server(t, h))
}

// What a deletion has left that broke off in the middle, because its process died, the next call that
// changes the server takes back.
func TestTheNextCallTakesBackABrokenDeletion(t *testing.T) {
	for name, call := range map[string]func(*Hosting) error{
		"start":      func(h *Hosting) error { return h.Start(t.Context(), 5) },
		"stop":       func(h *Hosting) error { return h.Stop(t.Context(), 5, false) },
		"wake":       func(h *Hosting) error { return h.Wake(t.Context(), 5) },
		"resize":     func(h *Hosting) error { return h.Resize(t.Context(), 5, 2, 0) },
		"keep awake": func(h *Hosting) error { return h.KeepAwake(t.Context(), 5, time.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			h := cluster(t, interceptor.Funcs{})
			s := server(t, h)
			s.Spec.Deletion.Force, s.Spec.Storage[0].OnDelete = true, v1alpha1.StorageDelete
			if err := h.Client.Update(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if err := call(h); err != nil {
				t.Fatal(err)
			}
			keepsDisk(t, server(t, h))
		})
	}
}

// A server that was stopped by force is still ended by it when its memory is changed meanwhile.
func TestAResizeLeavesAForcedStop(t *testing.T) {
	h := cluster(t, interceptor.Funcs{})
	for _, err := range []error{h.Stop(t.Context(), 5, true), h.Resize(t.Context(), 5, 2, 0)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !server(t, h).Spec.Deletion.Force {
		t.Error("it waits for its players")
	}
}
