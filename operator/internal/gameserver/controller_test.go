package gameserver

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
)

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
