package gametype

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// servicePorts are the ports that the Service can have: those with a known number.
func servicePorts(gt *v1alpha1.GameType) []corev1.ServicePort {
	var ports []corev1.ServicePort
	for _, p := range gt.Spec.Template.Spec.Ports {
		if p.ContainerPort == 0 || !p.Published() {
			continue
		}
		for _, transport := range p.Protocol.Transports() {
			ports = append(ports, corev1.ServicePort{
				Name: servicePortName(&p, transport), Protocol: transport, Port: p.ContainerPort, TargetPort: intstr.FromInt32(p.ContainerPort),
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

// portSpecs are what the GameType says of the Service's ports.
func portSpecs(gt *v1alpha1.GameType) []v1alpha1.PortSpec {
	var specs []v1alpha1.PortSpec
	for _, p := range gt.Spec.Template.Spec.Ports {
		if p.ContainerPort == 0 || !p.Published() ||
			p.Protocol.Application() == "" && p.Readiness == "" && p.AbortOnClose == nil && p.Asleep == nil {
			continue
		}
		specs = append(specs, v1alpha1.PortSpec{
			// Of a port over both, only TCP has such settings.
			Name:     servicePortName(&p, p.Protocol.Transports()[0]),
			Protocol: p.Protocol.Application(), Readiness: cmp.Or(p.Readiness, v1alpha1.ReadinessAuto),
			AbortOnClose: p.AbortOnClose, Asleep: p.Asleep.DeepCopy(),
		})
	}
	return specs
}

// frontSetting is GameTypeSettingsAnnotation's word for the front, and portSetting what it puts
// before a port's name.
const (
	frontSetting = "front"
	portSetting  = "ports/"
)

// shapePorts takes the front and the ports' settings from the GameType. What somebody made of
// them in the ElasticService stays where the GameType says nothing; what the GameType once said
// goes when it doesn't say it any more.
func shapePorts(gt *v1alpha1.GameType, es *v1alpha1.ElasticService, spec *v1alpha1.ElasticServiceSpec) {
	before := strings.Split(es.Annotations[wellknown.GameTypeSettingsAnnotation], ",")
	var now []string
	switch {
	case gt.Spec.Front != nil:
		spec.Front = gt.Spec.Front
		now = append(now, frontSetting)
	case !slices.Contains(before, frontSetting):
		spec.Front = es.Spec.Front
	}
	spec.Ports = portSpecs(gt)
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
