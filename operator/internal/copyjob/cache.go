package copyjob

import (
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/wellknown"
)

// CachedObjects are how Jobs are cached: of all the cluster's only those that copy, and of what they run
// only the labels.
func CachedObjects() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&batchv1.Job{}: {
		Label: labels.SelectorFromSet(labels.Set{ManagedByLabel: wellknown.ManagedBy}),
		Transform: func(o any) (any, error) {
			if job, ok := o.(*batchv1.Job); ok {
				kept := job.Spec.Template.Labels
				job.ManagedFields, job.Spec = nil, batchv1.JobSpec{}
				job.Spec.Template.Labels = kept
			}
			return o, nil
		},
	}}
}
