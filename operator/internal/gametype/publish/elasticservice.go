package publish

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// ElasticService changes an ElasticService, new or existing, to what the GameType asks
// for, with the ports that its Service has.
func ElasticService(gt *v1alpha1.GameType, es *v1alpha1.ElasticService, ports []corev1.ServicePort) {
	metav1.SetMetaDataLabel(&es.ObjectMeta, wellknown.GameTypeLabel, gt.Name)
	spec := v1alpha1.ElasticServiceSpec{
		Service:        gt.Name,
		ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType", Name: gt.Name},
		SleepAfter:     &metav1.Duration{},
		Handoff:        v1alpha1.HandoffDirect,
		Hold:           es.Spec.Hold,
		Awake:          gt.Spec.Awake,
		WakeWith:       gt.Spec.WakeWith,
	}
	if s := gt.Spec.Sleep; s != nil {
		if s.After != nil {
			spec.SleepAfter = s.After
		}
		spec.MinReplicas, spec.Handoff, spec.Hold, spec.Wake = s.MinReplicas, s.Handoff, s.Hold, s.Wake
		spec.Balance, spec.ProxyProtocol = s.Balance, s.ProxyProtocol
		if players := s.Players == nil || *s.Players; players || len(s.Triggers) > 0 {
			spec.Idle = &v1alpha1.Idle{Players: players, Triggers: s.Triggers}
		}
	}
	if gt.Spec.Wake != nil {
		spec.Wake = gt.Spec.Wake
	}
	if gt.Spec.Hold != nil {
		spec.Hold = *gt.Spec.Hold
	}
	shapeSettings(gt, es, &spec, ports)
	es.Spec = spec
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

// frontSetting is GameTypeSettingsAnnotation's word for the front, and portSetting is what it puts
// before a port's name.
const (
	frontSetting = "front"
	portSetting  = "ports/"
)

// annotated are the annotations that an ElasticService has from its GameType, and
// GameTypeSettingsAnnotation's words for them.
var annotated = []struct{ annotation, setting string }{
	{wellknown.KeepAwakeUntilAnnotation, "keep-awake-until"},
	{wellknown.KeepAsleepUntilAnnotation, "keep-asleep-until"},
}

// frontTarget is the Service's port to which the front leads: that of the template's port which the
// GameType names, or, while there are ports of earlier revisions, which alone says host names.
func frontTarget(gt *v1alpha1.GameType, ports []corev1.ServicePort) string {
	named := gt.Spec.Front.TargetPort
	if named == "" && len(ports) <= len(Ports(gt)) {
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

// shapeSettings takes the front, the ports' settings and annotations from the GameType. What somebody made of
// them in the ElasticService stays where the GameType says nothing; what the GameType once said
// goes when it doesn't say it any more.
func shapeSettings(gt *v1alpha1.GameType, es *v1alpha1.ElasticService, spec *v1alpha1.ElasticServiceSpec, ports []corev1.ServicePort) {
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
	for _, a := range annotated {
		until, asks := gt.Annotations[a.annotation]
		switch {
		case asks:
			metav1.SetMetaDataAnnotation(&es.ObjectMeta, a.annotation, until)
			now = append(now, a.setting)
		case slices.Contains(before, a.setting):
			delete(es.Annotations, a.annotation)
		}
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
