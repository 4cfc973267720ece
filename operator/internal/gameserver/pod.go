package gameserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/operator/internal/hostports"
)

// Annotations that tell cluster autoscalers that Pods must stay.
const (
	safeToEvict  = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	doNotDisrupt = "karpenter.sh/do-not-disrupt"
)

// Sidecar is what runs beside each game.
type Sidecar struct {
	// Container has the administrator's settings for it: its image, resources, security and
	// environment.
	Container corev1.Container
	// OperatorURL is where it reports to.
	OperatorURL string
	// APIURL is where the game finds the REST API, if its Server has an API for its process.
	APIURL string
	// ReportKey is the ID of the key with which it signs its reports; empty: it has a token in
	// a volume.
	ReportKey string
	// AfterGame is set where it may start after the game, because it outlives the game by itself.
	AfterGame bool
}

// createPod creates a Server's Pod, with the host ports that were picked. refused is what its
// owner, or the administrator, has to fix.
func (r *Reconciler) createPod(ctx context.Context, s *v1alpha1.Server, hostPorts []int32) (refused, err error) {
	// The sidecar is as the administrator's PodTemplate has it.
	t := &corev1.PodTemplate{}
	if err := r.Client.Get(ctx, r.SidecarTemplate, t); err != nil {
		return fmt.Errorf("the PodTemplate %s, which says what the sidecar is, can't be read; apply config/sidecar: %w", r.SidecarTemplate, err), nil
	}
	if len(t.Template.Spec.Containers) == 0 {
		return fmt.Errorf("the PodTemplate %s, which says what the sidecar is, has no container", r.SidecarTemplate), nil
	}
	sidecar := Sidecar{
		Container: t.Template.Spec.Containers[0], OperatorURL: r.OperatorURL, APIURL: r.APIURL, ReportKey: r.reportKey(ctx, s, t),
		AfterGame: t.Template.Annotations[wellknown.SidecarStartAnnotation] == wellknown.SidecarStartAfterGame,
	}
	if unfilled, err := r.keepClaims(ctx, s); err != nil || unfilled != nil {
		return r.waitForFill(s, unfilled, err)
	}
	if _, err := r.keepCode(ctx, s); err != nil {
		return forUser(err)
	}
	pod := buildPod(s, sidecar, hostPorts, s.Spec.Deletion.Unreported != v1alpha1.DeletionDenied)
	err = r.Client.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		return r.taken(ctx, s)
	}
	if err == nil {
		r.made.add(string(s.UID), r.Now())
	}
	return forUser(wrapf(err, "create Pod %s", client.ObjectKeyFromObject(s)))
}

// buildPod builds a Server's Pod: the template, with the sidecar and what it and the game need.
// hostPorts are the picked ports, in the order of spec.ports.
func buildPod(s *v1alpha1.Server, sidecar Sidecar, hostPorts []int32, deletable bool) *corev1.Pod {
	template := s.Spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Namespace: s.Namespace,
			Labels: template.Labels, Annotations: template.Annotations,
			Finalizers: template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(s, v1alpha1.GroupVersion.WithKind("Server")),
			},
		},
		Spec: template.Spec,
	}
	metav1.SetMetaDataLabel(&pod.ObjectMeta, wellknown.ServerLabel, s.Name)
	if fleet := s.Labels[wellknown.FleetLabel]; fleet != "" {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, wellknown.FleetLabel, fleet)
	}
	besideDisks(s, pod)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, gamepod.ContainerAnnotation, gamepod.Container(s))
	if !inFleet(s) {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, wellknown.PodHashAnnotation, podHash(&s.Spec))
	}
	setDeletable(&pod.ObjectMeta, deletable)
	if pod.Spec.AutomountServiceAccountToken == nil {
		pod.Spec.AutomountServiceAccountToken = new(false)
	}
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == gamepod.Container(s) })
	if i >= 0 {
		buildGame(s, &pod.Spec, &pod.Spec.Containers[i], hostPorts)
	}
	if hasGameAPI(s) && i >= 0 {
		setEnv(&pod.Spec.Containers[i], gameapi.URLEnv, sidecar.APIURL)
		setCode(s, &pod.Spec.Containers[i])
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, wellknown.GameAPIAnnotation, "true")
	} else {
		delete(pod.Annotations, wellknown.GameAPIAnnotation) // a template's
	}
	addSidecar(&pod.Spec, buildSidecar(s, sidecar, hostPorts), sidecar.AfterGame && !awaitsSidecar(s))
	if sidecar.ReportKey != "" {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, wellknown.ReportKeyAnnotation, sidecar.ReportKey)
	} else {
		delete(pod.Annotations, wellknown.ReportKeyAnnotation) // a template's
		pod.Spec.Volumes = append(pod.Spec.Volumes, tokenVolume())
	}
	return pod
}

// addSidecar adds the sidecar to a Pod's containers. Where that works it is the last of them, so
// that the game needn't wait for it to start. Else it is an init container that restarts always,
// which kubelet starts before the game and ends after it:
//   - where the Pod's start waits for it;
//   - in a Pod that doesn't restart always, which would not end with its game;
//   - on the node's network, where the game's sockets are among the node's;
//   - beside init containers of the template that restart always, which end after the sidecar.
func addSidecar(spec *corev1.PodSpec, c corev1.Container, afterGame bool) {
	always := func(c corev1.Container) bool {
		return ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
	}
	restarts := spec.RestartPolicy == "" || spec.RestartPolicy == corev1.RestartPolicyAlways
	if !afterGame || !restarts || spec.HostNetwork || slices.ContainsFunc(spec.InitContainers, always) {
		c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		spec.InitContainers = append([]corev1.Container{c}, spec.InitContainers...)
		return
	}
	var ports []string
	for _, game := range spec.Containers {
		for _, p := range game.Ports {
			if p.Protocol == corev1.ProtocolSCTP {
				continue // the sidecar's tables don't show it
			}
			ports = append(ports, fmt.Sprintf("%d/%s", p.ContainerPort, orDefault(string(p.Protocol), string(corev1.ProtocolTCP))))
		}
	}
	c.Args = append(c.Args, "--outlive-game")
	if len(ports) > 0 {
		c.Args = append(c.Args, "--game-ports="+strings.Join(ports, ","))
	}
	spec.Containers = append(spec.Containers, c)
}

// awaitsSidecar reports whether a Pod's start waits for its sidecar:
//   - the game tells it that it is ready. The SDK's clients that find nobody there try again after
//     a second, which is longer than the sidecar takes;
//   - a port is exposed on the node, where players may come before kubelet shows the Pod's address;
//   - a container has a postStart hook, which may wait for it. kubelet starts the next container
//     after the hook.
func awaitsSidecar(s *v1alpha1.Server) bool {
	return s.Spec.Readiness == v1alpha1.ServerReadinessSDK || slices.ContainsFunc(s.Spec.Ports, hostports.Exposed) || slices.ContainsFunc(s.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return c.Lifecycle != nil && c.Lifecycle.PostStart != nil
	})
}

// setDeletable notes on a Pod whether it may be evicted.
func setDeletable(m *metav1.ObjectMeta, deletable bool) {
	metav1.SetMetaDataLabel(m, wellknown.DeletionAllowedLabel, strconv.FormatBool(deletable))
	metav1.SetMetaDataAnnotation(m, safeToEvict, strconv.FormatBool(deletable))
	metav1.SetMetaDataAnnotation(m, doNotDisrupt, strconv.FormatBool(!deletable))
}

// buildGame gives the game's container its environment, ports and disks.
func buildGame(s *v1alpha1.Server, spec *corev1.PodSpec, game *corev1.Container, hostPorts []int32) {
	setEnv(game, "SERVER_NAME", s.Name)
	setEnv(game, "SERVER_NAMESPACE", s.Namespace)
	setEnv(game, "AGONES_SDK_GRPC_PORT", strconv.Itoa(wellknown.SDKGRPCPort))
	setEnv(game, "AGONES_SDK_HTTP_PORT", strconv.Itoa(wellknown.SDKHTTPPort))
	for i, port := range s.Spec.Ports {
		number := hostports.Listen(port, hostPorts[i])
		setEnv(game, "SERVER_PORT_"+strings.ToUpper(strings.ReplaceAll(port.Name, "-", "_")), strconv.Itoa(int(number)))
		for _, protocol := range port.Protocol.Transports() {
			setPort(game, corev1.ContainerPort{
				Name: gamepod.PortName(&port, protocol), ContainerPort: number, Protocol: protocol, HostPort: hostPorts[i],
			})
		}
	}
	for _, disk := range s.Spec.Storage {
		name := "storage-" + disk.Name
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(s, disk)},
		}})
		game.VolumeMounts = append(game.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: disk.MountPath})
	}
}

// buildSidecar builds the container beside the game. The Pod is ready only while the sidecar
// reports that the game takes players.
func buildSidecar(s *v1alpha1.Server, sidecar Sidecar, hostPorts []int32) corev1.Container {
	health := s.Spec.Health
	args := []string{
		"--operator=" + sidecar.OperatorURL,
		fmt.Sprintf("--grpc-port=%d", wellknown.SDKGRPCPort),
		fmt.Sprintf("--http-port=%d", wellknown.SDKHTTPPort),
		fmt.Sprintf("--listen=:%d", wellknown.SidecarPort),
		"--readiness=" + orDefault(string(s.Spec.Readiness), string(v1alpha1.ServerReadinessAuto)),
		"--unreported=" + orDefault(string(s.Spec.Deletion.Unreported), string(v1alpha1.DeletionAllowed)),
	}
	if health.InitialDelay != nil {
		args = append(args, "--health-initial-delay="+health.InitialDelay.Duration.String())
	}
	if health.Period != nil {
		args = append(args, "--health-period="+health.Period.Duration.String())
	}
	if health.FailureThreshold > 0 {
		args = append(args, fmt.Sprintf("--health-failure-threshold=%d", health.FailureThreshold))
	}
	if health.Disabled {
		args = append(args, "--health-disabled")
	}
	if players := s.Spec.Players; players != nil {
		args = append(args, fmt.Sprintf("--capacity=%d", players.Capacity))
	}
	if probe := gamepod.Probe(&s.Spec); probe != nil {
		args = append(args, fmt.Sprintf("--probe=%s:%d", probe.Type, probePort(s, probe.Port, hostPorts)))
	}
	c := sidecar.Container.DeepCopy()
	c.Name = wellknown.SidecarContainer
	c.RestartPolicy = nil
	c.Args = args
	setEnv(c, "SERVER_NAME", s.Name)
	setEnv(c, "SERVER_NAMESPACE", s.Namespace)
	c.Ports = []corev1.ContainerPort{{Name: "dormouse", ContainerPort: wellknown.SidecarPort, Protocol: corev1.ProtocolTCP}}
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(wellknown.SidecarPort)}},
		PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 1,
	}
	setCredential(c, sidecar.ReportKey)
	c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == gameapi.CodeEnv })
	if hasGameAPI(s) {
		setCode(s, c)
	}
	return *c
}

// probePort is the number of the port that the player probe uses: the one of that name, else the
// first.
func probePort(s *v1alpha1.Server, name string, hostPorts []int32) int32 {
	for i, port := range s.Spec.Ports {
		if name == "" || port.Name == name {
			return hostports.Listen(port, hostPorts[i])
		}
	}
	return 0 // the API server refuses that
}

// setEnv adds a variable, unless the template has one of that name.
func setEnv(c *corev1.Container, name, value string) {
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name }) {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
	}
}

// setPort adds a port, or adds the host port to a port that the template has.
func setPort(c *corev1.Container, port corev1.ContainerPort) {
	for i := range c.Ports {
		have := &c.Ports[i]
		if have.ContainerPort == port.ContainerPort && orDefault(string(have.Protocol), "TCP") == string(port.Protocol) {
			have.HostPort = max(have.HostPort, port.HostPort)
			return
		}
	}
	if slices.ContainsFunc(c.Ports, func(have corev1.ContainerPort) bool { return have.Name == port.Name }) {
		port.Name = "" // the name is the template's, the port is ours
	}
	c.Ports = append(c.Ports, port)
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// errStranger means that a Pod that isn't the Server's has its name.
var errStranger = errors.New("a Pod of somebody else has the name")

// taken finds out whose a Pod is that has the Server's name and that the cache doesn't show.
func (r *Reconciler) taken(ctx context.Context, s *v1alpha1.Server) (refused, err error) {
	pod := &corev1.Pod{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(s), pod); err != nil {
		return nil, wrapf(client.IgnoreNotFound(err), "read Pod %s", client.ObjectKeyFromObject(s))
	}
	if !metav1.IsControlledBy(pod, s) {
		return errStranger, nil
	}
	_, err = r.unseen(ctx, s, observed{})
	r.made.add(string(s.UID), r.Now())
	return nil, err
}

// forUser separates errors that a user must fix from errors that time will resolve.
func forUser(err error) (refused, _ error) {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil, err
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return err, nil
	}
	return nil, err
}

func (r *Reconciler) deletePod(ctx context.Context, pod *corev1.Pod, opts ...client.DeleteOption) error {
	for i, opt := range opts {
		if p, ok := opt.(client.Preconditions); ok {
			p.UID = &pod.UID
			opts[i] = p
		}
	}
	if len(opts) == 0 {
		opts = append(opts, client.Preconditions{UID: &pod.UID})
	}
	err := r.Client.Delete(ctx, pod, opts...)
	return wrapf(client.IgnoreNotFound(err), "delete Pod %s", client.ObjectKeyFromObject(pod))
}

// markPod notes on a Pod whether it may be evicted.
func (r *Reconciler) markPod(ctx context.Context, pod *corev1.Pod, deletable bool) error {
	var meta metav1.ObjectMeta
	setDeletable(&meta, deletable)
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "labels": meta.Labels, "annotations": meta.Annotations}})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = r.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, body))
	return wrapf(client.IgnoreNotFound(err), "mark Pod %s", client.ObjectKeyFromObject(pod))
}

// unseen looks for a Pod of a Server that is about to be released which the cache doesn't show:
// somebody may have removed the label by which it is watched. Such a Pod gets the label back.
func (r *Reconciler) unseen(ctx context.Context, s *v1alpha1.Server, o observed) (bool, error) {
	if o.stranger {
		return false, nil
	}
	pod := &corev1.Pod{}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(s), pod)
	if err != nil || !metav1.IsControlledBy(pod, s) || ended(pod) {
		return false, wrapf(client.IgnoreNotFound(err), "look for the Pod of Server %s", client.ObjectKeyFromObject(s))
	}
	if pod.Labels[wellknown.ServerLabel] == s.Name {
		return true, nil // the cache is about to show it
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "labels": map[string]string{wellknown.ServerLabel: s.Name}}})
	if err != nil {
		return true, fmt.Errorf("encode a patch: %w", err)
	}
	err = r.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, body))
	return true, wrapf(client.IgnoreNotFound(err), "label Pod %s", client.ObjectKeyFromObject(pod))
}

// deleteOrphan deletes the Pod of a Server that doesn't exist according to the API server
// itself: the cache may not have a new one yet.
func (r *Reconciler) deleteOrphan(ctx context.Context, pod *corev1.Pod) error {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Server" || pod.DeletionTimestamp != nil {
		return nil
	}
	s := &v1alpha1.Server{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, s)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("look for its Server: %w", err)
	}
	if err == nil && s.UID == owner.UID {
		return nil
	}
	r.tell(r.picker.Hold(owner.UID, nil))
	return r.deletePod(ctx, pod)
}
