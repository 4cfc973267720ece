package gameserver

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/conditions"
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

func (w *written) Wrote(s *v1alpha1.Server) { w.noted = append(w.noted, s.ResourceVersion) }

func (w *written) Latest(cached *v1alpha1.Server) *v1alpha1.Server { return cached }

func (w *written) WroteAfter(*v1alpha1.Server) bool { return w.reported }

// A status that is of an earlier Server than a report's write isn't sent at all, and one that is
// written is known before the cache has it.
func TestAStatusGivesWayToAReport(t *testing.T) {
	for name, reported := range map[string]bool{"nothing was reported": false, "a report was written meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			s := full()
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

// patched keeps the last patch of a status.
type patched struct {
	client.SubResourceWriter
	last []byte
}

func (p *patched) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) (err error) {
	p.last, err = patch.Data(o)
	return err
}

// statuses is a client that can write statuses.
type statuses struct {
	client.Client
	writer client.SubResourceWriter
}

func (s statuses) Status() client.SubResourceWriter { return s.writer }

// What two passes over the same old Server may both write, the API server must take
// once: a condition's change has a time and an event. A report in between must not
// make it refuse what has nothing to do with it.
func TestAChangeIsWrittenOnceThoughTheCacheIsBehind(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.ServerStatus)
		once   bool
	}{
		"a condition": {func(s *v1alpha1.ServerStatus) {
			s.Conditions = []metav1.Condition{{Type: conditions.Ready, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(5, 0))}}
		}, true},
		"what a report says": {func(s *v1alpha1.ServerStatus) { s.DeletionAllowed = true }, true},
		"an address":         {func(s *v1alpha1.ServerStatus) { s.Address = "192.0.2.1" }, false},
	} {
		before := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby-1", ResourceVersion: "7"}}
		after := before.DeepCopy()
		c.change(&after.Status)
		wrote := &patched{}
		if ok, err := (&Reconciler{Client: statuses{writer: wrote}}).writeStatus(t.Context(), before, after, false); !ok || err != nil {
			t.Fatalf("%s: written %v, %v", name, ok, err)
		}
		var got struct {
			Metadata struct{ ResourceVersion string }
		}
		if err := json.Unmarshal(wrote.last, &got); err != nil {
			t.Fatal(err)
		}
		if once := got.Metadata.ResourceVersion == "7"; once != c.once {
			t.Errorf("%s: the patch %s is good for one version only: %v, want %v", name, wrote.last, once, c.once)
		}
	}
}
