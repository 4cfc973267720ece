package disks

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Root is where Pods beside the game mount the disks: each in a directory of its name.
const Root = "/disks"

// MountPath is where a Pod beside the game has a disk.
func MountPath(disk string) string { return Root + "/" + disk }

// Beside builds the spec of a Pod that mounts all disks of a Server beside its game, with one
// container: the sidecar's image, and the user and the group of the game, so that files have the owner
// that the game expects. It may only be scheduled where the other Pods of the disks are, unless those
// may be anywhere: a disk may be one node's. template is the sidecar's PodTemplate.
func Beside(set *Set, template *corev1.PodTemplate, args ...string) corev1.PodSpec {
	c := *template.Template.Spec.Containers[0].DeepCopy()
	c.Args, c.Env, c.RestartPolicy = args, nil, nil
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	user, group := owner(set.Spec)
	if user != nil {
		c.SecurityContext.RunAsUser = user
		c.SecurityContext.RunAsNonRoot = new(*user != 0)
		c.SecurityContext.RunAsGroup = nil
	}
	if group != nil {
		c.SecurityContext.RunAsGroup = group
	}
	spec := corev1.PodSpec{
		AutomountServiceAccountToken: new(false),
		EnableServiceLinks:           new(false),
		Affinity:                     &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}},
		ImagePullSecrets:             PullSecrets(template.Template.Spec.ImagePullSecrets, set.Spec.Template.Spec.ImagePullSecrets),
		SecurityContext:              securityContext(&set.Spec.Template.Spec),
	}
	if !set.Anywhere {
		spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{WithDisksOf(set.Name)}
	}
	game := &set.Spec.Template.Spec
	// The disks are where the game may run: a new one is made where its first Pod comes to.
	spec.Tolerations, spec.NodeSelector = game.Tolerations, game.NodeSelector
	if game.Affinity != nil {
		spec.Affinity.NodeAffinity = game.Affinity.NodeAffinity.DeepCopy()
	}
	for _, disk := range set.Spec.Storage {
		name := ShortName("disk-" + disk.Name)
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: ClaimName(set.Name, disk.Name)},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: MountPath(disk.Name)})
	}
	spec.Containers = []corev1.Container{c}
	return spec
}

// Taken is what Beside takes from a game's Pod. With that alone it builds the same Pod, also once the Server
// is gone.
func Taken(s *v1alpha1.ServerSpec) *corev1.PodSpec {
	game := &s.Template.Spec
	taken := &corev1.PodSpec{
		SecurityContext: securityContext(game), Tolerations: game.Tolerations, NodeSelector: game.NodeSelector, ImagePullSecrets: game.ImagePullSecrets,
	}
	taken.SecurityContext.RunAsUser, taken.SecurityContext.RunAsGroup = owner(s)
	if game.Affinity != nil && game.Affinity.NodeAffinity != nil {
		taken.Affinity = &corev1.Affinity{NodeAffinity: game.Affinity.NodeAffinity}
	}
	return taken.DeepCopy()
}

// PullSecrets are the Secrets of several lists, each once: with which a Pod pulls images that are of the game's
// owner, and of the administrator, whose sidecar is in it. A registry that needs none of them ignores them.
func PullSecrets(lists ...[]corev1.LocalObjectReference) []corev1.LocalObjectReference {
	var all []corev1.LocalObjectReference
	for _, list := range lists {
		for _, secret := range list {
			if !slices.Contains(all, secret) {
				all = append(all, secret)
			}
		}
	}
	return all
}

// WithDisksOf selects the node of the other Pods that have a Server's disks. A Pod that has the label
// itself may be the first one.
func WithDisksOf(server string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{wellknown.DisksLabel: server}},
		TopologyKey:   corev1.LabelHostname,
	}
}

// Owner is the user, the group and the group of the disks with which a Pod beside the game runs; nil:
// the sidecar's.
func Owner(s *v1alpha1.ServerSpec) (user, group, ofDisks *int64) {
	user, group = owner(s)
	return user, group, fsGroup(s)
}

// owner is the user and the group of the game, as far as its template says.
func owner(s *v1alpha1.ServerSpec) (user, group *int64) {
	if p := s.Template.Spec.SecurityContext; p != nil {
		user, group = p.RunAsUser, p.RunAsGroup
	}
	containers := s.Template.Spec.Containers
	i := max(0, slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == s.GameContainer }))
	if i < len(containers) && containers[i].SecurityContext != nil {
		c := containers[i].SecurityContext
		if c.RunAsUser != nil {
			user = c.RunAsUser
		}
		if c.RunAsGroup != nil {
			group = c.RunAsGroup
		}
	}
	return user, group
}

// securityContext is what the game's Pod says of its disks: whoever mounts them with another group, or
// another label of SELinux, would take them from the game. Files that have the group already aren't gone
// through again.
func securityContext(game *corev1.PodSpec) *corev1.PodSecurityContext {
	c := &corev1.PodSecurityContext{FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch)}
	if is := game.SecurityContext; is != nil {
		c.FSGroup, c.SupplementalGroups, c.SELinuxOptions = is.FSGroup, is.SupplementalGroups, is.SELinuxOptions
		c.SupplementalGroupsPolicy, c.SELinuxChangePolicy = is.SupplementalGroupsPolicy, is.SELinuxChangePolicy
	}
	return c
}

// fsGroup is the group that owns the disks, where the game's Pod has one.
func fsGroup(s *v1alpha1.ServerSpec) *int64 {
	if p := s.Template.Spec.SecurityContext; p != nil {
		return p.FSGroup
	}
	return nil
}
