package hosting

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/gametype/publish"
)

// Bounds of what a server may have.
const (
	MaxRAM  = 1024
	MaxDisk = 65536
)

// Want is what a server is asked for.
type Want struct {
	// RAM and Disk are in GiB. A Disk of 0 is as large as the game's own.
	RAM, Disk int64
	// Game is the name of the GameType that it is made from.
	Game string
}

// The disk of a game whose template has none.
const (
	diskName  = "data"
	diskMount = "/data"
)

// ownDisk is how large a game's first disk is by itself, in GiB, of which each begun one counts.
func ownDisk(gt *v1alpha1.GameType) int64 {
	if len(gt.Spec.Template.Spec.Storage) == 0 {
		return 1
	}
	size := gt.Spec.Template.Spec.Storage[0].Size.Value()
	return max(1, (size+1<<30-1)>>30)
}

func gibibytes(n int64) resource.Quantity { return *resource.NewQuantity(n<<30, resource.BinarySI) }

// buildServer builds the Server of a number: the game's template, with the memory and the disk that
// are asked for. It is stopped until somebody starts it.
func buildServer(namespace string, id int64, want Want, gt *v1alpha1.GameType) *v1alpha1.Server {
	template := gt.Spec.Template.DeepCopy()
	s := &v1alpha1.Server{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Server"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: Name(id),
			Labels: labels(template.Metadata.Labels, want.Game), Annotations: template.Metadata.Annotations,
			// One that is deleted before the operator has seen it has a disk, too, of an earlier server.
			Finalizers: []string{wellknown.DeletionGuardFinalizer},
		},
		Spec: template.Spec,
	}
	s.Spec.Running, s.Spec.Replicas = new(false), ptr.To[int32](0)
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		p.Publish, p.Readiness, p.AbortOnClose, p.Asleep = nil, "", nil, nil
	}
	setRAM(&s.Spec, want.RAM)
	if len(s.Spec.Storage) == 0 {
		s.Spec.Storage = []v1alpha1.StorageSpec{{Name: diskName, MountPath: diskMount}}
	}
	for i := range s.Spec.Storage {
		// A call says whether a disk goes. Whoever deletes the Server by other means keeps it.
		s.Spec.Storage[i].OnDelete = v1alpha1.StorageRetain
	}
	s.Spec.Storage[0].Size = gibibytes(want.Disk)
	if gt.Spec.Files != nil {
		s.Spec.Files = gt.Spec.Files.DeepCopy()
		// The users of one server are no other's.
		s.Spec.Files.Secret = filesName(s.Name)
	}
	s.Spec.Backup = gt.Spec.Backup.DeepCopy()
	return s
}

func labels(of map[string]string, game string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, of)
	all[wellknown.HostedGameLabel] = game
	return all
}

// game is the container that is the game; nil if the template has none.
func game(s *v1alpha1.ServerSpec) *corev1.Container {
	containers := s.Template.Spec.Containers
	if i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == s.GameContainer }); i >= 0 {
		return &containers[i]
	}
	if len(containers) == 0 {
		return nil
	}
	return &containers[0]
}

// setRAM gives the game so much memory, and no more.
func setRAM(s *v1alpha1.ServerSpec, gib int64) {
	c := game(s)
	if c == nil {
		return
	}
	for _, list := range []*corev1.ResourceList{&c.Resources.Requests, &c.Resources.Limits} {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[corev1.ResourceMemory] = gibibytes(gib)
	}
}

// wantOf reads back what a Server was asked for.
func wantOf(s *v1alpha1.Server) Want {
	w := Want{Game: s.Labels[wellknown.HostedGameLabel]}
	if c := game(&s.Spec); c != nil {
		w.RAM = c.Resources.Limits.Memory().Value() >> 30
	}
	if len(s.Spec.Storage) > 0 {
		w.Disk = s.Spec.Storage[0].Size.Value() >> 30
	}
	return w
}

// Roles of ports.
const (
	Primary = "primary"
	RCON    = "rcon"
	SFTP    = "sftp"
)

// portOf is the index of the template's port that has a role; -1 if it has none. Primary is the port
// of that name, or the first one that players use.
func portOf(s *v1alpha1.ServerSpec, role string) int {
	if i := slices.IndexFunc(s.Ports, func(p v1alpha1.ServerPort) bool { return p.Name == role }); i >= 0 || role != Primary {
		return i
	}
	return slices.IndexFunc(s.Ports, func(p v1alpha1.ServerPort) bool {
		return p.Published() && p.ContainerPort > 0 && !onRequest(p.Name)
	})
}

// onRequest reports whether a port is reached from outside only once somebody has asked for its
// number.
func onRequest(port string) bool { return port == RCON || port == SFTP }

// exposed is a copy of a GameType whose published ports are those that a server shows: the players'
// ports, and what was asked for besides.
func exposed(gt *v1alpha1.GameType, name string, asked []string) *v1alpha1.GameType {
	gt = gt.DeepCopy()
	gt.Name = name
	for i := range gt.Spec.Template.Spec.Ports {
		p := &gt.Spec.Template.Spec.Ports[i]
		if onRequest(p.Name) {
			p.Publish = new(slices.Contains(asked, p.Name))
		}
	}
	return gt
}

// buildService builds the Service of a server. Ports that it has keep their numbers on the nodes.
func buildService(s *v1alpha1.Server, gt *v1alpha1.GameType, kind corev1.ServiceType, asked []string, have *corev1.Service) *corev1.Service {
	shown := exposed(gt, s.Name, asked)
	ports := publish.Ports(shown)
	if have != nil {
		for i := range ports {
			for _, h := range have.Spec.Ports {
				if h.Name == ports[i].Name {
					ports[i].NodePort = h.NodePort
				}
			}
		}
	}
	svc := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name, OwnerReferences: []metav1.OwnerReference{owner(s)},
			Labels: labels(gt.Spec.Service.Labels, gt.Name), Annotations: gt.Spec.Service.Annotations,
		},
		Spec: corev1.ServiceSpec{
			Type: kind, Ports: ports,
			IPFamilyPolicy: gt.Spec.Service.IPFamilyPolicy, ExternalTrafficPolicy: gt.Spec.Service.ExternalTrafficPolicy,
		},
	}
	if kind == corev1.ServiceTypeClusterIP {
		svc.Spec.ExternalTrafficPolicy = ""
	}
	if kind == corev1.ServiceTypeLoadBalancer {
		svc.Spec.LoadBalancerSourceRanges, svc.Spec.LoadBalancerClass = gt.Spec.Service.LoadBalancerSourceRanges, gt.Spec.Service.LoadBalancerClass
		if have != nil && have.Spec.Type == kind {
			// No load balancer's class ever changes.
			svc.Spec.LoadBalancerClass = have.Spec.LoadBalancerClass
		}
	}
	return svc
}

// buildElasticService builds the ElasticService of a server. What keeps it asleep is no part of it.
func buildElasticService(s *v1alpha1.Server, gt *v1alpha1.GameType, asked []string, ports []corev1.ServicePort) *v1alpha1.ElasticService {
	shown := exposed(gt, s.Name, asked)
	if shown.Spec.Front != nil {
		shown.Spec.Front.Hosts = hosts(s.Name, shown.Spec.Front.Hosts)
	}
	built := &v1alpha1.ElasticService{}
	publish.ElasticService(shown, built, ports)
	es := &v1alpha1.ElasticService{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ElasticService"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name, OwnerReferences: []metav1.OwnerReference{owner(s)}, Labels: labels(nil, gt.Name),
		},
		Spec: built.Spec,
	}
	es.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Server", Name: s.Name}
	es.Spec.MinReplicas, es.Spec.WakeWith = nil, nil
	return es
}

// hosts are the names of a server at a front: one below each of the game's own.
func hosts(name string, of []v1alpha1.FrontHost) []v1alpha1.FrontHost {
	var all []v1alpha1.FrontHost
	for _, h := range of {
		domain := strings.TrimPrefix(string(h), "*.")
		if own := v1alpha1.FrontHost(name + "." + domain); domain != "*" && !slices.Contains(all, own) {
			all = append(all, own)
		}
	}
	return all
}

// runs reports whether nobody has stopped a server.
func runs(s *v1alpha1.Server) bool { return s.Spec.Running == nil || *s.Spec.Running }

func owner(s *v1alpha1.Server) metav1.OwnerReference {
	return *metav1.NewControllerRef(s, v1alpha1.GroupVersion.WithKind("Server"))
}
