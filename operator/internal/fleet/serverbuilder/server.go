// Package serverbuilder decides what the Servers of a Fleet are made of, and what their names are. It is
// a function of the Fleet; a random name is the one exception.
package serverbuilder

import (
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/places"
	"dormouse.dev/dormouse/operator/internal/scheduling"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

// Build builds a Server as a Fleet makes it, with its place where it has one; else place is places.None.
// Hash is that of the Fleet's template. What its Pod gets because of the Fleet isn't in its template, where
// that goes without saying: each Server is stored.
func Build(f *v1alpha1.Fleet, hash, name string, place int32) *v1alpha1.Server {
	t := f.Spec.Template.DeepCopy()
	s := &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   f.Namespace,
			Name:        name,
			Labels:      t.Metadata.Labels,
			Annotations: t.Metadata.Annotations,
			// Present from the start, so that there is no moment without the guard.
			Finalizers:      []string{wellknown.DeletionGuardFinalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f, v1alpha1.GroupVersion.WithKind("Fleet"))},
		},
		Spec: t.Spec,
	}
	metav1.SetMetaDataLabel(&s.ObjectMeta, wellknown.FleetLabel, f.Name)
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, wellknown.TemplateHashAnnotation, hash+"-"+templatehash.OfAny(f.Spec.Template.Metadata)[:8])
	if place != places.None {
		s.Labels[wellknown.PlaceLabel] = strconv.Itoa(int(place))
	}
	// A template that drains would be replaced for ever.
	s.Spec.Drain = false
	if f.Spec.Scheduling == v1alpha1.SchedulingDistributed {
		scheduling.Distribute(&s.Spec.Template.Spec, f.Name)
	}
	return s
}

// TemplateHash is the hash of the template that a Server was made from; empty if an earlier version made it that
// noted none.
func TemplateHash(s *v1alpha1.Server) string {
	hash, _ := templateHashes(s)
	return hash
}

// templateHashes are the hashes of the template, and of its metadata alone, which earlier versions didn't note.
func templateHashes(s *v1alpha1.Server) (hash, metadata string) {
	hash, metadata, _ = strings.Cut(s.Annotations[wellknown.TemplateHashAnnotation], "-")
	return hash, metadata
}

// Like reports whether a Server is like one that would be created from the template now.
// Labels and annotations that somebody added to it don't count, and those that the template has no more do.
func Like(is, desired *v1alpha1.Server) bool {
	_, was := templateHashes(is)
	if _, metadata := templateHashes(desired); was != "" && was != metadata {
		return false
	}
	spec, want := compared(is), compared(desired)
	spec.Drain = want.Drain
	annotations := maps.Clone(desired.Annotations)
	delete(annotations, wellknown.TemplateHashAnnotation)
	return contains(is.Labels, desired.Labels) && contains(is.Annotations, annotations) && equality.Semantic.DeepEqual(&spec, &want)
}

// compared is the part of a Server's spec by which revisions differ, without what only its Pod gets:
// earlier versions wrote that into the Servers.
func compared(s *v1alpha1.Server) v1alpha1.ServerSpec {
	spec := templatehash.RevisionSpec(s.Spec)
	spec.Template.Labels = maps.Clone(spec.Template.Labels)
	delete(spec.Template.Labels, wellknown.FleetLabel)
	spec.Template.Spec = scheduling.Unpacked(spec.Template.Spec, s.Labels[wellknown.FleetLabel])
	return spec
}

// contains reports whether all of some labels or annotations are among others.
func contains(all, some map[string]string) bool {
	for key, value := range some {
		if got, ok := all[key]; !ok || got != value {
			return false
		}
	}
	return true
}
