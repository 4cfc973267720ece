package gametype

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/operator/internal/endpoints"
)

// servicePorts are the ports that the Service can have: those with a known number. Each leads to
// the port of its name in a Pod, whose number may differ between revisions.
func servicePorts(gt *v1alpha1.GameType) []corev1.ServicePort {
	var ports []corev1.ServicePort
	spec := &gt.Spec.Template.Spec
	for i := range spec.Ports {
		p := &spec.Ports[i]
		if p.ContainerPort == 0 || !p.Published() {
			continue
		}
		for _, transport := range p.Protocol.Transports() {
			ports = append(ports, corev1.ServicePort{
				Name: servicePortName(p, transport), Protocol: transport, Port: p.ContainerPort, TargetPort: targetPort(spec, p, transport),
			})
		}
	}
	return ports
}

// servicePortName is a port's name in the Service. A TCPUDP port needs two names.
func servicePortName(p *v1alpha1.ServerPort, transport corev1.Protocol) string {
	if p.Protocol.Transport() != v1alpha1.ServerProtocolTCPUDP {
		return p.Name
	}
	return p.Name + "-" + strings.ToLower(string(transport))
}

// targetPort is the name of a port in the Pods of a template, or its number where the template's
// own ports leave it no name.
func targetPort(s *v1alpha1.ServerSpec, p *v1alpha1.ServerPort, transport corev1.Protocol) intstr.IntOrString {
	name := gamepod.PortName(p, transport)
	if len(s.Template.Spec.Containers) == 0 {
		return intstr.FromInt32(p.ContainerPort)
	}
	game := cmp.Or(s.GameContainer, s.Template.Spec.Containers[0].Name)
	for _, c := range s.Template.Spec.Containers {
		for _, have := range c.Ports {
			same := cmp.Or(have.Protocol, corev1.ProtocolTCP) == transport
			switch {
			case c.Name == game && have.ContainerPort == p.ContainerPort && same && have.Name != "":
				return intstr.FromString(have.Name)
			case c.Name == game && have.ContainerPort == p.ContainerPort && same, have.Name == name:
				return intstr.FromInt32(p.ContainerPort)
			}
		}
	}
	named := 0
	for i := range s.Ports {
		for _, over := range s.Ports[i].Protocol.Transports() {
			if gamepod.PortName(&s.Ports[i], over) == name {
				named++
			}
		}
	}
	if named > 1 {
		return intstr.FromInt32(p.ContainerPort)
	}
	return intstr.FromString(name)
}

// oldPort is a port of an earlier revision that still has Servers.
type oldPort struct {
	number    int32
	transport corev1.Protocol
	target    intstr.IntOrString
}

// oldPortsOf are the ports of the Servers that Fleets of earlier revisions have.
func oldPortsOf(gt *v1alpha1.GameType, list []v1alpha1.Fleet) []oldPort {
	var ports []oldPort
	for i := range list {
		f := &list[i]
		servers := f.Status.Replicas + f.Status.DrainingReplicas + ptr.Deref(f.Spec.Replicas, 1)
		if servers == 0 && f.Status.ObservedGeneration >= f.Generation || isCurrent(gt, f.Spec.Template, sentOf(f)) {
			continue
		}
		spec := &f.Spec.Template.Spec
		for j := range spec.Ports {
			for _, transport := range spec.Ports[j].Protocol.Transports() {
				ports = append(ports, oldPort{spec.Ports[j].ContainerPort, transport, targetPort(spec, &spec.Ports[j], transport)})
			}
		}
	}
	return ports
}

// lacksPorts reports whether the private Service lacks ports that the Service is to have while old
// Servers are there.
func (r *Reconciler) lacksPorts(ctx context.Context, gt *v1alpha1.GameType, old []oldPort) bool {
	service, private := &corev1.Service{}, &corev1.Service{}
	key := client.ObjectKeyFromObject(gt)
	if len(old) == 0 || r.Client.Get(ctx, key, service) != nil {
		return false
	}
	key.Name = endpoints.PrivateServiceName(gt.Name)
	if r.Client.Get(ctx, key, private) != nil {
		return false
	}
	for _, want := range planServicePorts(gt, service.Spec.Type, service.Spec.Ports, old) {
		if !slices.ContainsFunc(private.Spec.Ports, func(is corev1.ServicePort) bool {
			return is.Name == want.Name && is.Port == want.Port && is.TargetPort == want.TargetPort
		}) {
			return true
		}
	}
	return false
}

// planServicePorts decides which ports a Service has that has these. A port is known by its number.
// One that stays keeps its name, since players' UDP sessions end with it; a new one gets another name
// where its own is taken. One that no template has any more stays as long as old Servers have
// it: whoever plays there came by it.
func planServicePorts(gt *v1alpha1.GameType, kind corev1.ServiceType, have []corev1.ServicePort, old []oldPort) []corev1.ServicePort {
	wanted := servicePorts(gt)
	same := func(a, b *corev1.ServicePort) bool {
		return a.Port == b.Port && cmp.Or(a.Protocol, corev1.ProtocolTCP) == b.Protocol
	}
	var kept, dropped []corev1.ServicePort
	taken, stays := map[string]bool{}, make([]bool, len(wanted))
	for _, h := range have {
		h.Protocol = cmp.Or(h.Protocol, corev1.ProtocolTCP)
		if i := slices.IndexFunc(wanted, func(w corev1.ServicePort) bool { return same(&h, &w) }); i >= 0 {
			wanted[i].Name, wanted[i].NodePort, stays[i], taken[h.Name] = h.Name, h.NodePort, true, true
			// Old Pods may have that number by another name.
			if slices.ContainsFunc(old, func(o oldPort) bool {
				return o.number == h.Port && o.transport == h.Protocol && o.target != wanted[i].TargetPort
			}) {
				wanted[i].TargetPort = intstr.FromInt32(h.Port)
			}
			continue
		}
		i := slices.IndexFunc(old, func(o oldPort) bool { return o.number == h.Port && o.transport == h.Protocol })
		if i < 0 {
			dropped = append(dropped, h)
			continue
		}
		h.TargetPort, taken[h.Name] = old[i].target, true
		kept = append(kept, h)
	}
	names := servicePorts(gt)
	for i := range wanted {
		w := &wanted[i]
		if !stays[i] && taken[w.Name] {
			w.Name += "-" + strconv.Itoa(int(w.Port))
		}
		// A published node port goes over with the last of those who came by the old number.
		for _, d := range dropped {
			if d.NodePort != 0 && d.Protocol == w.Protocol && (d.TargetPort == w.TargetPort || d.Name == names[i].Name) {
				w.NodePort = d.NodePort
			}
		}
		for _, asked := range gt.Spec.Service.NodePorts {
			published := slices.ContainsFunc(kept, func(k corev1.ServicePort) bool { return k.NodePort == asked.NodePort && k.Protocol == w.Protocol })
			if !published && slices.ContainsFunc(gt.Spec.Template.Spec.Ports, func(p v1alpha1.ServerPort) bool {
				return p.Name == asked.Name && servicePortName(&p, w.Protocol) == names[i].Name
			}) {
				w.NodePort = asked.NodePort
			}
		}
	}
	all := append(wanted, kept...)
	if kind == corev1.ServiceTypeClusterIP {
		for i := range all {
			all[i].NodePort = 0
		}
	}
	return all
}

// portSpecs are what the GameType says of the Service's ports.
func portSpecs(gt *v1alpha1.GameType, ports []corev1.ServicePort) []v1alpha1.PortSpec {
	var specs []v1alpha1.PortSpec
	template := &gt.Spec.Template.Spec
	for i := range template.Ports {
		p := &template.Ports[i]
		if p.ContainerPort == 0 || !p.Published() ||
			p.Protocol.Application() == "" && p.Readiness == "" && p.AbortOnClose == nil && p.Asleep == nil {
			continue
		}
		// Of a port over both, only TCP has such settings.
		transport := p.Protocol.Transports()[0]
		target := targetPort(template, p, transport)
		for _, is := range ports {
			if is.Protocol == transport && (is.TargetPort == target || is.Port == p.ContainerPort) {
				specs = append(specs, v1alpha1.PortSpec{
					Name:     is.Name,
					Protocol: p.Protocol.Application(), Readiness: cmp.Or(p.Readiness, v1alpha1.ReadinessAuto),
					AbortOnClose: p.AbortOnClose, Asleep: p.Asleep.DeepCopy(),
				})
			}
		}
	}
	return specs
}

// frontSetting is GameTypeSettingsAnnotation's word for the front, and portSetting what it puts
// before a port's name.
const (
	frontSetting = "front"
	portSetting  = "ports/"
)

// frontTarget is the Service's port to which the front leads: that of the template's port which the
// GameType names, or, while there are ports of earlier revisions, which alone says host names.
func frontTarget(gt *v1alpha1.GameType, ports []corev1.ServicePort) string {
	named := gt.Spec.Front.TargetPort
	if named == "" && len(ports) <= len(servicePorts(gt)) {
		return ""
	}
	var found []string
	for _, p := range gt.Spec.Template.Spec.Ports {
		switch p.Protocol.Application() {
		case v1alpha1.ProtocolMinecraft, v1alpha1.ProtocolTLS, v1alpha1.ProtocolHTTP:
		default:
			if named == "" {
				continue
			}
		}
		if !p.Published() || named != "" && servicePortName(&p, corev1.ProtocolTCP) != named && p.Name != named {
			continue
		}
		for _, is := range ports {
			if is.Port == p.ContainerPort && is.Protocol == corev1.ProtocolTCP {
				found = append(found, is.Name)
			}
		}
	}
	if len(found) != 1 {
		return named
	}
	return found[0]
}

// shapePorts takes the front and the ports' settings from the GameType. What somebody made of
// them in the ElasticService stays where the GameType says nothing; what the GameType once said
// goes when it doesn't say it any more.
func shapePorts(gt *v1alpha1.GameType, es *v1alpha1.ElasticService, spec *v1alpha1.ElasticServiceSpec, ports []corev1.ServicePort) {
	before := strings.Split(es.Annotations[wellknown.GameTypeSettingsAnnotation], ",")
	var now []string
	switch {
	case gt.Spec.Front != nil:
		spec.Front = gt.Spec.Front.DeepCopy()
		spec.Front.TargetPort = frontTarget(gt, ports)
		now = append(now, frontSetting)
	case !slices.Contains(before, frontSetting):
		spec.Front = es.Spec.Front
	}
	spec.Ports = portSpecs(gt, ports)
	for _, p := range spec.Ports {
		now = append(now, portSetting+p.Name)
	}
	for _, p := range es.Spec.Ports {
		if !slices.Contains(now, portSetting+p.Name) && !slices.Contains(before, portSetting+p.Name) {
			spec.Ports = append(spec.Ports, p)
		}
	}
	if len(now) > 0 {
		metav1.SetMetaDataAnnotation(&es.ObjectMeta, wellknown.GameTypeSettingsAnnotation, strings.Join(now, ","))
	} else {
		delete(es.Annotations, wellknown.GameTypeSettingsAnnotation)
	}
}
