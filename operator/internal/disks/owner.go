package disks

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/places"
)

// Set is the disks of one Server, with what its owner says of them.
type Set struct {
	// Namespace and Name are the Server's, which may not exist now.
	Namespace, Name string
	// Owner is the Server, or the GameType that it is a place of.
	Owner metav1.OwnerReference
	// Spec is what the Server is made from.
	Spec *v1alpha1.ServerSpec
	// Labels and Annotations are those of the disks.
	Labels, Annotations map[string]string
	// Anywhere is set where each of the disks is known to be one that Pods of all nodes may have. Else
	// they have to be on the node of those that have them.
	Anywhere bool
	// Files and Backup are what the owner asks for; nil: nothing.
	Files  *v1alpha1.FilesSpec
	Backup *v1alpha1.BackupSpec
}

// Key is the Server's namespace and name.
func (s *Set) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// OfServer are the disks of a Server that is nobody's; nil for one of a Fleet, and for one that has none.
func OfServer(s *v1alpha1.Server) *Set {
	if len(s.Spec.Storage) == 0 || metav1.GetControllerOf(s) != nil {
		return nil
	}
	return &Set{
		Namespace: s.Namespace, Name: s.Name, Spec: &s.Spec, Files: s.Spec.Files, Backup: s.Spec.Backup,
		Owner:       *metav1.NewControllerRef(s, v1alpha1.GroupVersion.WithKind("Server")),
		Labels:      Labels(s.Name, nil),
		Annotations: map[string]string{wellknown.ServerUIDAnnotation: string(s.UID)},
	}
}

// OfGameType are the disks of a GameType's places, the lowest first; none where its Servers have no
// disks.
func OfGameType(gt *v1alpha1.GameType) []*Set {
	if len(gt.Spec.Template.Spec.Storage) == 0 {
		return nil
	}
	var all []*Set
	for _, place := range places.First(ptr.Deref(gt.Spec.Replicas, 1)) {
		all = append(all, OfPlace(gt, place))
	}
	return all
}

// OfPlace are the disks of one place of a GameType whose Servers have disks, also of one that it has
// only for a while, when an autoscaler asks for more Servers.
func OfPlace(gt *v1alpha1.GameType, place int32) *Set {
	number := strconv.Itoa(int(place))
	name := gt.Name + "-" + number
	return &Set{
		Namespace: gt.Namespace, Name: name, Spec: &gt.Spec.Template.Spec, Files: gt.Spec.Files, Backup: gt.Spec.Backup,
		Owner:  *metav1.NewControllerRef(gt, v1alpha1.GroupVersion.WithKind("GameType")),
		Labels: Labels(name, map[string]string{wellknown.PlaceLabel: number, wellknown.GameTypeLabel: gt.Name}),
	}
}

// Find finds the disks of a Server by its name, in the cache: those of a Server of its own, or of a
// place of a GameType. It is nil where there is neither.
func Find(ctx context.Context, cached client.Reader, key types.NamespacedName) (*Set, error) {
	s := &v1alpha1.Server{}
	err := cached.Get(ctx, key, s)
	if err == nil {
		if set := OfServer(s); set != nil {
			return set, nil
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Server %s: %w", key, err)
	}
	at := strings.LastIndexByte(key.Name, '-')
	if at < 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	number := key.Name[at+1:]
	place, err := strconv.ParseInt(number, 10, 32)
	if err != nil || place < 0 || strconv.FormatInt(place, 10) != number {
		return nil, nil //nolint:nilnil,nilerr // there are none
	}
	gt := &v1alpha1.GameType{}
	err = cached.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name[:at]}, gt)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there are none
	case err != nil:
		return nil, fmt.Errorf("read GameType %s/%s: %w", key.Namespace, key.Name[:at], err)
	case len(gt.Spec.Template.Spec.Storage) == 0:
		return nil, nil //nolint:nilnil // there are none
	}
	return OfPlace(gt, int32(place)), nil
}
