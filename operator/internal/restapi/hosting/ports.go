package hosting

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// settle gives the ports of a server what its game's template says of the players who come by them.
func settle(ports, template []v1alpha1.ServerPort) {
	for i := range ports {
		p := &ports[i]
		j := slices.IndexFunc(template, func(t v1alpha1.ServerPort) bool { return t.Name == p.Name })
		if j < 0 {
			continue
		}
		t := &template[j]
		p.Publish, p.Readiness, p.AbortOnClose, p.Asleep = t.Publish, t.Readiness, t.AbortOnClose, t.Asleep
	}
}

// askedPorts are the ports on request that a Service has, and the one that is asked for now.
func askedPorts(have *corev1.Service, role string) []string {
	var asked []string
	if onRequest(role) {
		asked = append(asked, role)
	}
	if have != nil {
		for _, p := range have.Spec.Ports {
			if onRequest(p.Name) {
				asked = append(asked, p.Name)
			}
		}
	}
	return asked
}

// serviceType is the type of a server's Service. Numbers on the nodes are few, so a server has
// some only once somebody asks for one; and what it has it keeps.
func serviceType(gt *v1alpha1.GameType, have *corev1.Service, role string) corev1.ServiceType {
	switch {
	case gt.Spec.Service.Type == v1alpha1.GameServiceLoadBalancer:
		return corev1.ServiceTypeLoadBalancer
	case gt.Spec.Service.Type == v1alpha1.GameServiceNodePort, role != "" && (gt.Spec.Front == nil || role != Primary):
		return corev1.ServiceTypeNodePort
	case have != nil && have.Spec.Type != "":
		return have.Spec.Type
	}
	return corev1.ServiceTypeClusterIP
}

// Port is the number by which the port of a role is reached from outside. The first call makes it
// so; from then on it stays.
func (h *Hosting) Port(ctx context.Context, id int64, role string) (int32, error) {
	s, err := h.change(ctx, id)
	if err != nil {
		return 0, err
	}
	svc, err := h.ensure(ctx, s, role)
	if err != nil {
		return 0, err
	}
	es := &v1alpha1.ElasticService{}
	if err := h.Client.Get(ctx, client.ObjectKeyFromObject(s), es); err != nil {
		return 0, fmt.Errorf("read ElasticService %s: %w", h.key(id), err)
	}
	if f := es.Spec.Front; f != nil && role == Primary {
		front := &corev1.Service{}
		if err := h.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: f.Service}, front); err != nil {
			return 0, fmt.Errorf("read the front's Service %s/%s: %w", s.Namespace, f.Service, err)
		}
		svc = front
		if len(front.Spec.Ports) > 0 {
			return outside(front, front.Spec.Ports[0]), nil
		}
	}
	name := role
	if i := portOf(&s.Spec, role); i >= 0 {
		name = s.Spec.Ports[i].Name
	}
	if p := servicePort(svc, name); p != nil {
		return outside(svc, *p), nil
	}
	return 0, failf(NotFound, "port", "the game of server %d has no port %s", id, role)
}

// servicePort is the Service's port for a port of the template; that over TCP where it has both.
func servicePort(svc *corev1.Service, name string) *corev1.ServicePort {
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if p.Name == name || strings.TrimSuffix(strings.TrimSuffix(p.Name, "-tcp"), "-udp") == name {
			return p
		}
	}
	return nil
}

// outside is the number of a Service's port for who isn't in the cluster.
func outside(svc *corev1.Service, p corev1.ServicePort) int32 {
	if svc.Spec.Type == corev1.ServiceTypeNodePort {
		return p.NodePort
	}
	return p.Port
}
