package disks

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

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
	if !places.Has(&gt.Spec.Template) {
		return nil
	}
	var all []*Set
	for _, place := range places.First(ptr.Deref(gt.Spec.Replicas, 1)) {
		name := gt.Name + "-" + strconv.Itoa(int(place))
		all = append(all, &Set{
			Namespace: gt.Namespace, Name: name, Spec: &gt.Spec.Template.Spec, Files: gt.Spec.Files, Backup: gt.Spec.Backup,
			Owner: *metav1.NewControllerRef(gt, v1alpha1.GroupVersion.WithKind("GameType")),
			Labels: Labels(name, map[string]string{
				wellknown.PlaceLabel: strconv.Itoa(int(place)), wellknown.GameTypeLabel: gt.Name,
			}),
		})
	}
	return all
}
