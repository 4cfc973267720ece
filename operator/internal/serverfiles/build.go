package serverfiles

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

// suffix ends the names of a Server's three objects.
const suffix = "-files"

const (
	managedByLabel = "app.kubernetes.io/managed-by"
	containerName  = "files"
	portName       = "sftp"
	// servicePort is where clients connect, and targetPort where the Pod listens: it isn't root.
	servicePort = 22
	targetPort  = 2022
	metricsPort = wellknown.SidecarPort

	secretVolume = "secret"
	secretMount  = "/secret"
)

// Times and bounds of a Server's files.
const (
	sleepAfter         = time.Minute
	defaultIdleTimeout = 5 * time.Minute
	// grace is how many seconds a Pod has when it is deleted. A copy gives it disks.UploadDrain, within
	// which the program ends by itself.
	grace = 30
	drain = disks.Drain - 10*time.Second
	// holdTimeout is how long a client waits. A volume may have to be brought to a node first.
	holdTimeout = 3 * time.Minute
	// holdConnections and holdBytes bound what a resolver keeps: until the server has said
	// something, SSH's clients send little more than a line.
	holdConnections = 64
	holdBytes       = 16 << 10
	// perSource are the clients of an address that are held, and perSourceRate those that may ask
	// in a minute. Programs such as FileZilla open some connections at once.
	perSource     = 8
	perSourceRate = 60
)

// Name is the name of the three objects of a Server.
func Name(server string) string { return server + suffix }

// serverOf is the Server whose objects have a name; false: none.
func serverOf(name string) (string, bool) {
	server, ok := strings.CutSuffix(name, suffix)
	return server, ok && server != ""
}

// gameTypeOf is the GameType whose place a Server's name may be; false: none.
func gameTypeOf(server string) (string, bool) {
	i := strings.LastIndexByte(server, '-')
	if i <= 0 {
		return "", false
	}
	_, err := strconv.ParseUint(server[i+1:], 10, 31)
	return server[:i], err == nil
}

func objectMeta(set *disks.Set) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: set.Namespace, Name: Name(set.Name),
		Labels:          map[string]string{managedByLabel: wellknown.ManagedBy, wellknown.FilesLabel: set.Name},
		OwnerReferences: []metav1.OwnerReference{set.Owner},
	}
}

// built are the objects of a Server as they are to be, and as they begin. What an object begins with,
// it has for as long as it is there: it is created with no more than that, and gets the rest by
// server-side apply, which can also take it away again.
type built struct {
	kind           string
	begin, desired client.Object
	// asked is a hash of what a Deployment would be with a sidecar that says nothing; empty: it is no Deployment.
	asked string
}

// build builds the objects, in the order of kinds. The sidecar's template has a container.
func build(set *disks.Set, sidecar *corev1.PodTemplate) []built {
	deployment, service, es := buildDeployment(set, sidecar), buildService(set), buildElasticService(set)
	ofNoSidecar := buildDeployment(set, &corev1.PodTemplate{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}})
	begin := &appsv1.Deployment{ObjectMeta: objectMeta(set), Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(0)), Strategy: deployment.Spec.Strategy, Selector: deployment.Spec.Selector,
		Template: corev1.PodTemplateSpec{
			ObjectMeta: *deployment.Spec.Template.ObjectMeta.DeepCopy(),
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: containerName, Image: deployment.Spec.Template.Spec.Containers[0].Image}}},
		},
	}}
	return []built{
		{"Deployment", begin, deployment, templatehash.OfAny(ofNoSidecar)},
		{"Service", &corev1.Service{ObjectMeta: objectMeta(set), Spec: corev1.ServiceSpec{Ports: service.Spec.Ports}}, service, ""},
		{"ElasticService", &v1alpha1.ElasticService{ObjectMeta: objectMeta(set), Spec: v1alpha1.ElasticServiceSpec{
			Service: es.Spec.Service, ScaleTargetRef: es.Spec.ScaleTargetRef, MinReplicas: es.Spec.MinReplicas, Handoff: es.Spec.Handoff, ProxyProtocol: es.Spec.ProxyProtocol,
		}}, es, ""},
	}
}

// buildDeployment builds the Deployment without its replicas, which the ElasticService sets.
func buildDeployment(set *disks.Set, sidecar *corev1.PodTemplate) *appsv1.Deployment {
	labels := map[string]string{wellknown.FilesLabel: set.Name, wellknown.DisksLabel: set.Name}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: objectMeta(set),
		Spec: appsv1.DeploymentSpec{
			// Two Pods at a time might be on two nodes.
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			// Without DisksLabel, by which the game would be its Pod, too.
			Selector:             &metav1.LabelSelector{MatchLabels: map[string]string{wellknown.FilesLabel: set.Name}},
			RevisionHistoryLimit: new(int32(0)),
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: buildPod(set, sidecar)},
		},
	}
}

func buildPod(set *disks.Set, sidecar *corev1.PodTemplate) corev1.PodSpec {
	pod := disks.Beside(set, sidecar, args(set)...)
	own(&pod, set)
	pod.TerminationGracePeriodSeconds = new(int64(grace))
	// A Pod of before that still ends on another node has the disks, too: the game's node is better.
	pod.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{{
		Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{wellknown.ServerLabel: set.Name}},
			TopologyKey:   corev1.LabelHostname,
		},
	}}
	// While a Job copies the disks at rest, nobody else writes to them.
	pod.SchedulingGates = []corev1.PodSchedulingGate{{Name: wellknown.FilesGate}}
	mode := int32(0o440)
	if pod.SecurityContext.FSGroup == nil {
		// Then they are root's, and the program isn't. Nothing else is in the Pod.
		mode = 0o444
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: secretVolume, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: set.Files.Secret, DefaultMode: &mode},
	}})
	c := &pod.Containers[0]
	c.Name = containerName
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: secretVolume, MountPath: secretMount, ReadOnly: true})
	c.Ports = []corev1.ContainerPort{
		{Name: portName, ContainerPort: targetPort, Protocol: corev1.ProtocolTCP},
		{Name: "metrics", ContainerPort: metricsPort, Protocol: corev1.ProtocolTCP},
	}
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(metricsPort)}},
		PeriodSeconds: 1,
	}
	c.LivenessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil
	c.Resources = *c.Resources.DeepCopy()
	if c.Resources.Limits == nil {
		c.Resources.Limits = corev1.ResourceList{}
	}
	c.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("128Mi")
	if r := c.Resources.Requests.Memory(); r.Cmp(c.Resources.Limits[corev1.ResourceMemory]) > 0 {
		c.Resources.Requests[corev1.ResourceMemory] = c.Resources.Limits[corev1.ResourceMemory]
	}
	return pod
}

// own sets the user and the group that files.runAsUser and runAsGroup name.
func own(pod *corev1.PodSpec, set *disks.Set) {
	security := pod.Containers[0].SecurityContext
	if user := set.Files.RunAsUser; user != nil {
		security.RunAsUser, security.RunAsNonRoot = user, new(*user != 0)
	}
	if group := set.Files.RunAsGroup; group != nil {
		security.RunAsGroup = group
		if game := set.Spec.Template.Spec.SecurityContext; game == nil || game.FSGroup == nil {
			pod.SecurityContext.FSGroup = group
		}
	}
}

func args(set *disks.Set) []string {
	root := disks.Root
	if len(set.Spec.Storage) == 1 {
		root = disks.MountPath(set.Spec.Storage[0].Name)
	}
	idle := defaultIdleTimeout
	if set.Files.IdleTimeout != nil {
		idle = set.Files.IdleTimeout.Duration
	}
	list := []string{
		"files", "--root=" + root, "--host-key=" + secretMount + "/host", "--users=" + secretMount,
		"--listen=:" + strconv.Itoa(targetPort), fmt.Sprintf("--metrics-listen=:%d", metricsPort),
		"--idle-timeout=" + idle.String(), "--drain=" + drain.String(), "--proxy-protocol",
	}
	if set.Files.Quota != nil {
		list = append(list, "--quota="+strconv.FormatInt(set.Files.Quota.Value(), 10))
	}
	if len(set.Files.AllowCIDRs) > 0 {
		list = append(list, "--allow="+strings.Join(set.Files.AllowCIDRs, ","))
	}
	return list
}

// buildService builds the Service, which has no selector: its endpoints are the resolvers, always.
func buildService(set *disks.Set) *corev1.Service {
	asked := set.Files.Service
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: objectMeta(set),
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{{Name: portName, Protocol: corev1.ProtocolTCP, Port: servicePort, TargetPort: intstr.FromInt32(targetPort)}},
		},
	}
	for name, value := range asked.Annotations {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, name, value)
	}
	if asked.Type != "" && asked.Type != v1alpha1.GameServiceClusterIP {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceType(asked.Type), asked.ExternalTrafficPolicy
	}
	return s
}

func buildElasticService(set *disks.Set) *v1alpha1.ElasticService {
	name := Name(set.Name)
	return &v1alpha1.ElasticService{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ElasticService"},
		ObjectMeta: objectMeta(set),
		Spec: v1alpha1.ElasticServiceSpec{
			Service:        name,
			ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
			MinReplicas:    new(int32(1)),
			SleepAfter:     &metav1.Duration{Duration: sleepAfter},
			Handoff:        v1alpha1.HandoffNever,
			ProxyProtocol:  &v1alpha1.ProxyProtocol{Send: true},
			// It has been connected to a moment before kubelet says that it is ready.
			Ports: []v1alpha1.PortSpec{{Name: portName, Protocol: v1alpha1.ProtocolTCP, Readiness: v1alpha1.ReadinessConnect}},
			Wake:  &v1alpha1.Wake{When: v1alpha1.WakeOnLogin, AllowCIDRs: set.Files.AllowCIDRs, PerSourceRate: perSourceRate},
			Hold: v1alpha1.Hold{
				Timeout: &metav1.Duration{Duration: holdTimeout}, MaxConnections: holdConnections, MaxBytesPerConnection: holdBytes,
				PerSource: &v1alpha1.PerSource{MaxConnections: perSource},
			},
		},
	}
}
