package fleet

import (
	"context"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/places"
	"dormouse.dev/dormouse/operator/internal/text"
)

// keepDisks lets disks outlive a Fleet that says so since a moment ago. Those of a GameType's Fleets belong to that.
func (r *Reconciler) keepDisks(ctx context.Context, f *v1alpha1.Fleet, m *state) error {
	if r.Live == nil || metav1.GetControllerOf(f) != nil {
		return nil
	}
	of := client.MatchingLabels{wellknown.FleetLabel: f.Name}
	return m.disks.Keep(ctx, r.Live, r.Client, f, of, f.Spec.Template.Spec.Storage, f.Status.ObservedGeneration == f.Generation) //nolint:wrapcheck // it says whose
}

// Before there were places each Server of a Fleet had a chance name, and its disks were never
// found again.

// maxDisks bounds how many disks of a namespace are looked at.
const maxDisks = 500

// reportLeftDisks emits an event about the disks that Servers with chance names left, once for each
// Fleet with storage.
func (r *Reconciler) reportLeftDisks(ctx context.Context, f *v1alpha1.Fleet, m *state) {
	if m.disksReported || r.Live == nil {
		return
	}
	var claims corev1.PersistentVolumeClaimList
	err := r.Live.List(ctx, &claims, client.InNamespace(f.Namespace), client.HasLabels{wellknown.ServerLabel}, client.Limit(maxDisks))
	if err != nil {
		return // the next pass tries again
	}
	m.disksReported = true
	names := leftDisks(places.Prefix(f), claims.Items, func(server string) bool {
		return r.Client.Get(ctx, types.NamespacedName{Namespace: f.Namespace, Name: server}, &v1alpha1.Server{}, client.UnsafeDisableDeepCopy) == nil
	})
	if len(names) > 0 {
		kit.Emit(r.Events, f, kit.Warning("DisksLeft", "KeepDisks",
			"Earlier Servers left %d disks that none has any more (%s). The guide on upgrading says how to go on with one; delete those that nobody needs.", len(names), text.Some(names)))
	}
}

// leftDisks are the names of the disks of a Fleet's or GameType's Servers with chance names that
// aren't there any more.
func leftDisks(prefix string, claims []corev1.PersistentVolumeClaim, there func(server string) bool) []string {
	chance := regexp.MustCompile(`^` + regexp.QuoteMeta(prefix) + `(-[a-z0-9]{1,10})?-[a-z0-9]{5}$`)
	var names []string
	for i := range claims {
		c := &claims[i]
		server := c.Labels[wellknown.ServerLabel]
		if _, placed := c.Labels[wellknown.PlaceLabel]; !placed && chance.MatchString(server) && !there(server) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}
