package env

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Game is a game of the test server: a Deployment or StatefulSet, its Service and its
// ElasticService, all of one name.
type Game struct {
	Namespace, Name string
	// TCP, UDP and Echo are the game's ports; each is a port of the Service too.
	TCP, UDP, Echo []int32
	// Web are TCP ports that speak HTTP.
	Web []int32
	// Replicas are what the Deployment begins with.
	Replicas int32
	// Probe gives the pods a readiness probe.
	Probe bool
	// Trigger lets the game's own number of players tell whether it is idle.
	Trigger bool
	// IdlePlayers lets the players of the target's Servers tell.
	IdlePlayers bool
	// Selectorless makes a Service without a selector.
	Selectorless bool
	Type         corev1.ServiceType
	Families     []corev1.IPFamily
	Handoff      v1alpha1.Handoff
	// Balance is how the resolver chooses servers, with handoff Never.
	Balance    v1alpha1.Balance
	SleepAfter time.Duration
	BootDelay  time.Duration
	// PreStop is how long a pod that is told to end sleeps first, and Linger for
	// how long its players may then finish.
	PreStop, Linger time.Duration
	// HoldTimeout is how long clients are held; 0 is the default.
	HoldTimeout time.Duration
	// Target replaces the Deployment as what sleeps; there is none then.
	Target *v1alpha1.ScaleTargetRef
	// StatefulSet takes the place of the Deployment.
	StatefulSet bool
	// Change changes the Deployment before it is made, and ChangeElastic the ElasticService.
	Change        func(*appsv1.Deployment)
	ChangeElastic func(*v1alpha1.ElasticService)
	// Image and Command replace the test server with another game.
	Image   string
	Command []string
	// Args are more arguments of the game.
	Args []string
}

// Key is the name of the game's objects.
func (g Game) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: g.Namespace, Name: g.Name}
}

// Create makes the game's objects.
func (e *Env) Create(ctx context.Context, g Game) error {
	objects := []client.Object{g.service(), g.elasticService()}
	switch {
	case g.Target != nil:
	case g.StatefulSet:
		objects = append([]client.Object{e.statefulSet(g)}, objects...)
	default:
		objects = append([]client.Object{e.Deployment(g)}, objects...)
	}
	for _, o := range objects {
		if err := e.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, g.Key(), err)
		}
	}
	return nil
}

// Deployment is the game's, not made yet.
func (e *Env) Deployment(g Game) *appsv1.Deployment {
	container := corev1.Container{
		Name:            "game",
		Image:           e.TestServer,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args:            g.args(),
		Env: []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
		}}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		// A Pod that asks for nothing gets nothing while the node is busy: for
		// seconds, in which its sockets overflow.
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")}},
	}
	if g.Image != "" {
		container.Image, container.Command, container.Args = g.Image, g.Command, g.Args
	}
	if g.Probe {
		container.ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}},
			PeriodSeconds: 1,
		}
	}
	if g.PreStop > 0 {
		container.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
			Sleep: &corev1.SleepAction{Seconds: int64(g.PreStop.Seconds())},
		}}
	}
	grace := int64((time.Second + g.PreStop + g.Linger).Seconds())
	labels := map[string]string{"app": g.Name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(g.Replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers:                    []corev1.Container{container},
					AutomountServiceAccountToken:  new(false),
					EnableServiceLinks:            new(false),
					TerminationGracePeriodSeconds: &grace,
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: new(true), RunAsUser: ptr.To[int64](65532),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
				},
			},
		},
	}
	if g.Change != nil {
		g.Change(d)
	}
	return d
}

// statefulSet is the game's StatefulSet, with the Pods of its Deployment.
func (e *Env) statefulSet(g Game) *appsv1.StatefulSet {
	d := e.Deployment(g)
	return &appsv1.StatefulSet{ObjectMeta: d.ObjectMeta, Spec: appsv1.StatefulSetSpec{
		Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template, ServiceName: g.Name,
	}}
}

func (g Game) args() []string {
	args := []string{"--http=:8080"}
	for flag, ports := range map[string][]int32{"tcp": g.TCP, "udp": g.UDP, "echo": g.Echo} {
		if len(ports) > 0 {
			args = append(args, "--"+flag+"="+list(ports))
		}
	}
	if g.BootDelay > 0 {
		args = append(args, "--boot-delay="+g.BootDelay.String())
	}
	if g.Linger > 0 {
		args = append(args, "--linger="+g.Linger.String())
	}
	return append(args, g.Args...)
}

func (g Game) service() *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name},
		Spec:       corev1.ServiceSpec{Type: g.Type, IPFamilies: g.Families},
	}
	if len(g.Families) == 2 {
		svc.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	if !g.Selectorless {
		svc.Spec.Selector = map[string]string{"app": g.Name}
	}
	add := func(prefix string, protocol corev1.Protocol, ports []int32) {
		for _, p := range ports {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{
				Name: fmt.Sprintf("%s-%d", prefix, p), Protocol: protocol, Port: p,
			})
		}
	}
	add("tcp", corev1.ProtocolTCP, g.TCP)
	add("udp", corev1.ProtocolUDP, g.UDP)
	add("echo", corev1.ProtocolTCP, g.Echo)
	add("web", corev1.ProtocolTCP, g.Web)
	return svc
}

func (g Game) elasticService() *v1alpha1.ElasticService {
	es := &v1alpha1.ElasticService{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name},
		Spec: v1alpha1.ElasticServiceSpec{
			Service:        g.Name,
			ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: g.Name},
			SleepAfter:     &metav1.Duration{Duration: g.SleepAfter},
			Handoff:        g.Handoff,
			Balance:        g.Balance,
		},
	}
	for _, p := range g.Web {
		es.Spec.Ports = append(es.Spec.Ports, v1alpha1.PortSpec{Name: fmt.Sprintf("web-%d", p), Protocol: v1alpha1.ProtocolHTTP})
	}
	if g.HoldTimeout > 0 {
		es.Spec.Hold.Timeout = &metav1.Duration{Duration: g.HoldTimeout}
	}
	if g.StatefulSet {
		es.Spec.ScaleTargetRef.Kind = "StatefulSet"
	}
	if g.Target != nil {
		es.Spec.ScaleTargetRef = *g.Target
	}
	if g.IdlePlayers {
		es.Spec.Idle = &v1alpha1.Idle{Players: true}
	}
	if g.Trigger {
		es.Spec.Idle = &v1alpha1.Idle{Triggers: []v1alpha1.Trigger{{
			Type: v1alpha1.TriggerHTTP,
			HTTP: &v1alpha1.HTTPTrigger{Port: 8080, Path: "/players", JSONPointer: "/players/online", Threshold: 1},
		}}}
	}
	if g.ChangeElastic != nil {
		g.ChangeElastic(es)
	}
	return es
}

func list(ports []int32) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = strconv.Itoa(int(p))
	}
	return strings.Join(texts, ",")
}
