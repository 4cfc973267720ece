package fleet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/fleet/serverbuilder"
	"dormouse.dev/dormouse/operator/internal/places"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

func TestAServerIsOutdatedOnceItsTemplateIsAnother(t *testing.T) {
	tests := map[string]struct {
		fleet  func(*v1alpha1.Fleet)
		server func(*v1alpha1.Server)
		want   bool
	}{
		"as it was made":     {},
		"more replicas":      {fleet: func(f *v1alpha1.Fleet) { f.Spec.Replicas = new(int32(9)) }},
		"other scheduling":   {fleet: func(f *v1alpha1.Fleet) { f.Spec.Scheduling = v1alpha1.SchedulingDistributed }},
		"another image":      {fleet: func(f *v1alpha1.Fleet) { f.Spec.Template.Spec.Template.Spec.Containers[0].Image = "game:2" }, want: true},
		"another label":      {fleet: func(f *v1alpha1.Fleet) { f.Spec.Template.Metadata.Labels["mode"] = "team" }, want: true},
		"another annotation": {fleet: func(f *v1alpha1.Fleet) { f.Spec.Template.Metadata.Annotations["map"] = "delta" }, want: true},
		"a label less":       {fleet: func(f *v1alpha1.Fleet) { delete(f.Spec.Template.Metadata.Labels, "mode") }, want: true},
		"an annotation less": {fleet: func(f *v1alpha1.Fleet) { delete(f.Spec.Template.Metadata.Annotations, "map") }, want: true},
		"a label less, and made before that was noted": {
			fleet: func(f *v1alpha1.Fleet) { delete(f.Spec.Template.Metadata.Labels, "mode") },
			server: func(s *v1alpha1.Server) {
				s.Annotations[wellknown.TemplateHashAnnotation] = serverbuilder.TemplateHash(s)
			},
		},
		"drained, and somebody's own": {server: func(s *v1alpha1.Server) { s.Spec.Drain = true; s.Labels["team"] = "red" }},
		"changed when it was made, as by a webhook": {server: func(s *v1alpha1.Server) {
			s.Spec.Template.Spec.Containers[0].Image = "mirror.example/game:1"
		}},
		"made before hashes were noted": {server: withoutHash},
		"made before hashes were noted, of another template": {
			server: withoutHash, fleet: func(f *v1alpha1.Fleet) { f.Spec.Template.Spec.Template.Spec.Containers[0].Image = "game:2" }, want: true,
		},
		"a further default of a newer API": {
			fleet: func(f *v1alpha1.Fleet) {
				f.Spec.Template.Spec.Template.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
			},
			server: func(s *v1alpha1.Server) { s.Spec.Template.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := lobbies()
			object := serverbuilder.Build(f, templatehash.Of(f.Spec.Template), "lobbies-abcde", places.None)
			object.UID, object.Generation = "server-1", 1
			if test.server != nil {
				test.server(object)
			}
			if test.fleet != nil {
				test.fleet(f)
				f.Generation++
			}
			m := &state{}
			m.follow(f)
			for range 2 { // The second time it is remembered.
				servers := []server{observe(object)}
				if m.markOutdated(f, servers, []*v1alpha1.Server{object}); servers[0].outdated != test.want {
					t.Errorf("outdated is %t, want %t", servers[0].outdated, test.want)
				}
			}
		})
	}
}

func withoutHash(s *v1alpha1.Server) { delete(s.Annotations, wellknown.TemplateHashAnnotation) }

func TestAComparisonIsRememberedAsLongAsItsServerIsThere(t *testing.T) {
	f := lobbies()
	object := serverbuilder.Build(f, templatehash.Of(f.Spec.Template), "lobbies-abcde", places.None)
	object.UID, object.Generation = "server-1", 1
	f.Spec.Template.Spec.Template.Spec.Containers[0].Image = "game:2"
	m := &state{}
	m.follow(f)
	m.markOutdated(f, []server{observe(object)}, []*v1alpha1.Server{object})
	if len(m.compared) != 1 {
		t.Fatalf("%d comparisons are remembered, want 1", len(m.compared))
	}
	// Its owner brings it to the template by hand.
	object.Spec.Template.Spec.Containers[0].Image = "game:2"
	object.Generation++
	servers := []server{observe(object)}
	if m.markOutdated(f, servers, []*v1alpha1.Server{object}); servers[0].outdated {
		t.Error("it is outdated though its spec is what the template makes")
	}
	if m.markOutdated(f, nil, nil); len(m.compared) != 0 {
		t.Errorf("%d comparisons are remembered of Servers that are gone", len(m.compared))
	}
}

// What was made a moment ago, and the cache doesn't show, is outdated like the rest.
func TestAServerInFlightIsOutdatedToo(t *testing.T) {
	f := lobbies()
	m := &state{}
	m.follow(f)
	servers := []server{observe(serverbuilder.Build(f, templatehash.Of(f.Spec.Template), "lobbies-abcde", places.None))}
	if m.markOutdated(f, servers, nil); servers[0].outdated {
		t.Error("it is outdated though it was just made")
	}
	f.Spec.Template.Spec.Template.Spec.Containers[0].Image, f.Generation = "game:2", f.Generation+1
	m.follow(f)
	if m.markOutdated(f, servers, nil); !servers[0].outdated {
		t.Error("it isn't outdated though the template was changed meanwhile")
	}
}

func TestConditionUpdated(t *testing.T) {
	tests := map[string]struct {
		update          v1alpha1.FleetUpdateStrategy
		servers         []server
		status          metav1.ConditionStatus
		reason, message string
	}{
		"no Servers": {status: metav1.ConditionTrue, reason: "Updated", message: "All Servers that take players are of the template."},
		"outdated ones drain": {
			servers: []server{has("a", 1, outdated, byFleet), has("b", 0)},
			status:  metav1.ConditionTrue, reason: "Updated", message: "All Servers that take players are of the template.",
		},
		"OnDelete": {
			servers: []server{has("a", 1, outdated), has("b", 0)}, status: metav1.ConditionFalse, reason: "OnDelete",
			message: "1 of 2 Servers is of an earlier template. With updateStrategy OnDelete they stay until something else ends them; Rolling replaces them.",
		},
		"Rolling": {
			update: v1alpha1.FleetUpdateRolling, servers: []server{has("a", 1, outdated), has("b", 0, outdated), has("c", 0)},
			status: metav1.ConditionFalse, reason: "Updating",
			message: "2 of 3 Servers are of an earlier template and replaced as new ones get ready; Allocated ones stay until their games end.",
		},
		"Rolling, and an Allocated one is left beside others": {
			update: v1alpha1.FleetUpdateRolling, servers: []server{has("a", 1, outdated, allocated), has("b", 0, outdated)},
			status: metav1.ConditionFalse, reason: "Updating",
			message: "2 of 2 Servers are of an earlier template and replaced as new ones get ready; Allocated ones stay until their games end.",
		},
		"Rolling, and Allocated ones alone are left": {
			update: v1alpha1.FleetUpdateRolling, servers: []server{has("a", 1, outdated, allocated), has("b", 0), has("c", 0, outdated, lost)},
			status: metav1.ConditionFalse, reason: "AllocatedRemain",
			message: "1 of 3 Servers is of an earlier template and Allocated, until the games there end.",
		},
		"Rolling, and one whose node is lost is left": {
			update: v1alpha1.FleetUpdateRolling, servers: []server{has("a", 1, outdated, lost), has("b", 0)},
			status: metav1.ConditionTrue, reason: "Updated", message: "All Servers that take players are of the template.",
		},
		"OnDelete, and an Allocated one": {
			servers: []server{has("a", 1, outdated, allocated)}, status: metav1.ConditionFalse, reason: "OnDelete",
			message: "1 of 1 Servers is of an earlier template. With updateStrategy OnDelete they stay until something else ends them; Rolling replaces them.",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := lobbies()
			f.Spec.UpdateStrategy = test.update
			got := updated(f, count(test.servers))
			if got.Status != test.status || got.Reason != test.reason || got.Message != test.message {
				t.Errorf("Updated is\n%s %s %q, want\n%s %s %q", got.Status, got.Reason, got.Message, test.status, test.reason, test.message)
			}
		})
	}
}
