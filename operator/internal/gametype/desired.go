package gametype

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/rand"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

var kind = v1alpha1.GroupVersion.WithKind("GameType")

// desiredTemplate is the GameType's template with its label, for the Servers and for their
// Pods: the Server controller passes on only labels that it knows. A requested restart makes it
// a different template.
func desiredTemplate(gt *v1alpha1.GameType) v1alpha1.ServerTemplate {
	t := *gt.Spec.Template.DeepCopy()
	t.Spec.Ports = templatehash.OfServers(t.Spec.Ports)
	if at, ok := gt.Annotations[v1alpha1.RestartedAtAnnotation]; ok {
		annotations := make(map[string]string, len(t.Metadata.Annotations)+1)
		maps.Copy(annotations, t.Metadata.Annotations)
		annotations[v1alpha1.RestartedAtAnnotation] = at
		t.Metadata.Annotations = annotations
	}
	t.Metadata.Labels = labelled(t.Metadata.Labels, gt)
	t.Spec.Template.Labels = labelled(t.Spec.Template.Labels, gt)
	return t
}

// desiredFleet is the Fleet of the GameType's template.
func desiredFleet(gt *v1alpha1.GameType, replicas int32, number int64) (*v1alpha1.Fleet, error) {
	t := desiredTemplate(gt)
	hash, err := hashOf(t, gt.Status.CollisionCount)
	if err != nil {
		return nil, fmt.Errorf("name the Fleet of GameType %s/%s: %w", gt.Namespace, gt.Name, err)
	}
	return &v1alpha1.Fleet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: gt.Namespace,
			Name:      gt.Name + "-" + hash,
			Labels:    labelled(nil, gt),
			Annotations: map[string]string{
				v1alpha1.RevisionAnnotation: strconv.FormatInt(number, 10), v1alpha1.TemplateHashAnnotation: templatehash.Of(t),
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(gt, kind)},
		},
		Spec: v1alpha1.FleetSpec{Replicas: &replicas, Template: t, ScaleDown: gt.Spec.ScaleDown, Scheduling: gt.Spec.Scheduling},
	}, nil
}

// hashOf names a template. Equal templates may be written in more than one way, so a Fleet is
// found by comparing and not by its hash.
func hashOf(t v1alpha1.ServerTemplate, collisions *int32) (string, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	hash := fnv.New32a()
	_, _ = hash.Write(text) // a hash accepts any input
	if collisions != nil {
		_, _ = fmt.Fprint(hash, *collisions)
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(hash.Sum32()), 10)), nil
}

// revisionName is the end of a Fleet's name.
func revisionName(gt *v1alpha1.GameType, fleet string) string {
	return strings.TrimPrefix(fleet, gt.Name+"-")
}

// selector selects the Pods of all the GameType's Servers.
func selector(gt *v1alpha1.GameType) string { return v1alpha1.GameTypeLabel + "=" + gt.Name }

func labelled(labels map[string]string, gt *v1alpha1.GameType) map[string]string {
	more := make(map[string]string, len(labels)+1)
	maps.Copy(more, labels)
	more[v1alpha1.GameTypeLabel] = gt.Name
	return more
}

// stamp is a time as an annotation's value; nil, which removes the annotation, for the zero
// time.
func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339)
}

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

// shapeService changes a Service, new or existing, to what the GameType asks for, and leaves
// the rest as it is.
func shapeService(gt *v1alpha1.GameType, s *corev1.Service) {
	s.Labels = labelled(s.Labels, gt)
	annotations := map[string]string{}
	maps.Copy(annotations, s.Annotations)
	for name := range strings.SplitSeq(s.Annotations[v1alpha1.ServiceAnnotationsAnnotation], ",") {
		delete(annotations, name)
	}
	maps.Copy(annotations, gt.Spec.Service.Annotations)
	delete(annotations, v1alpha1.ServiceAnnotationsAnnotation)
	if names := slices.Sorted(maps.Keys(gt.Spec.Service.Annotations)); len(names) > 0 {
		annotations[v1alpha1.ServiceAnnotationsAnnotation] = strings.Join(names, ",")
	}
	if len(annotations) > 0 || len(s.Annotations) > 0 {
		s.Annotations = annotations
	}
	s.Spec.Type = corev1.ServiceType(gt.Spec.Service.Type)
	s.Spec.Selector = nil
	if policy := gt.Spec.Service.IPFamilyPolicy; policy != nil {
		s.Spec.IPFamilyPolicy = policy
	}
	ports := servicePorts(gt)
	for i := range ports {
		for _, have := range s.Spec.Ports {
			if have.Name == ports[i].Name && have.Protocol == ports[i].Protocol && s.Spec.Type != corev1.ServiceTypeClusterIP {
				ports[i].NodePort = have.NodePort // a published node port stays
			}
		}
	}
	s.Spec.Ports = ports
}

// shapeElasticService changes an ElasticService, new or existing, to what the GameType asks
// for.
func shapeElasticService(gt *v1alpha1.GameType, es *v1alpha1.ElasticService) {
	es.Labels = labelled(es.Labels, gt)
	spec := v1alpha1.ElasticServiceSpec{
		Service:        gt.Name,
		ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: gt.Name},
		SleepAfter:     &metav1.Duration{},
		Handoff:        v1alpha1.HandoffDirect,
		Hold:           es.Spec.Hold,
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
	shapePorts(gt, es, &spec)
	es.Spec = spec
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
	before := strings.Split(es.Annotations[v1alpha1.GameTypeSettingsAnnotation], ",")
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
		metav1.SetMetaDataAnnotation(&es.ObjectMeta, v1alpha1.GameTypeSettingsAnnotation, strings.Join(now, ","))
	} else {
		delete(es.Annotations, v1alpha1.GameTypeSettingsAnnotation)
	}
}
