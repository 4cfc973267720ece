package gameserver

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// written are Reports where one was written, or none.
type written struct {
	reported bool
	noted    []string
	// turns are how many were taken, and held how many weren't ended.
	turns, held int
}

func (w *written) Look(context.Context, *v1alpha1.Server, types.UID) reportapi.Looked {
	return reportapi.Looked{}
}

func (w *written) Turn(types.UID) func() {
	w.turns++
	w.held++
	return func() { w.held-- }
}
func (w *written) Wrote(s *v1alpha1.Server)                        { w.noted = append(w.noted, s.ResourceVersion) }
func (w *written) Latest(cached *v1alpha1.Server) *v1alpha1.Server { return cached }
func (w *written) WroteAfter(*v1alpha1.Server) bool                { return w.reported }

// A status that is of an earlier Server than a report's write isn't sent at all, and one that is
// written is known before the cache has it.
func TestAStatusGivesWayToAReport(t *testing.T) {
	for name, reported := range map[string]bool{"nothing was reported": false, "a report was written meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			s := newWorld().server
			sent := 0
			c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(s).WithObjects(s).WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
					sent++
					return c.SubResource(sub).Patch(ctx, o, p, opts...)
				},
			}).Build()
			original := &v1alpha1.Server{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(s), original); err != nil {
				t.Fatal(err)
			}
			reports := &written{reported: reported}
			r := &Reconciler{Client: c, Reports: reports}
			changed := original.DeepCopy()
			changed.Status.DeletionAllowed = !changed.Status.DeletionAllowed
			wrote, err := r.writeStatus(t.Context(), original, changed, false)
			if wrote == reported || apierrors.IsConflict(err) != reported || reported && sent > 0 || !reported && len(reports.noted) != 1 || reports.turns != 1 || reports.held != 0 {
				t.Errorf("it wrote %t (%v) with %d calls, and noted %v; %d turns were taken, and %d are left", wrote, err, sent, reports.noted, reports.turns, reports.held)
			}
		})
	}
}
