package hosting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// settle gives the ports of a server what its game's template says now of the players who come by
// them. One that the template doesn't have any more is shown where it was, and nowhere else.
func settle(ports, template []v1alpha1.ServerPort, have *corev1.Service) {
	for i := range ports {
		p := &ports[i]
		j := slices.IndexFunc(template, func(t v1alpha1.ServerPort) bool { return t.Name == p.Name })
		if j < 0 {
			p.Publish = new(have != nil && servicePort(have, p.Name) != nil)
			continue
		}
		t := &template[j]
		p.Publish, p.Readiness, p.AbortOnClose, p.Asleep = t.Publish, t.Readiness, t.AbortOnClose, t.Asleep
	}
}

// shown is the Service's port of a role; nil if it has none. Primary is the port of that name, or the
// first one of the server's that players use.
func shown(s *v1alpha1.Server, svc *corev1.Service, role string) *corev1.ServicePort {
	if p := servicePort(svc, role); p != nil || role != Primary {
		return p
	}
	for i := range s.Spec.Ports {
		if name := s.Spec.Ports[i].Name; !onRequest(name) {
			if p := servicePort(svc, name); p != nil {
				return p
			}
		}
	}
	return nil
}

// shows reports whether a Service's port of a role is reached from outside.
func shows(s *v1alpha1.Server, svc *corev1.Service, role string) bool {
	p := shown(s, svc, role)
	return p != nil && svc.Spec.Type != corev1.ServiceTypeClusterIP && outside(svc, *p) > 0
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
	if role == SFTP {
		s, err := h.change(ctx, id)
		if err != nil {
			return 0, err
		}
		if serves(s) {
			return h.filesPort(ctx, id)
		}
	}
	svc, err := h.ensure(ctx, id, role)
	if err != nil {
		return 0, err
	}
	s, err := h.change(ctx, id)
	if err != nil {
		return 0, err
	}
	es := &v1alpha1.ElasticService{}
	if err := h.Client.Get(ctx, client.ObjectKeyFromObject(s), es); err != nil {
		return 0, fmt.Errorf("read ElasticService %s: %w", h.key(id), err)
	}
	if es.Spec.Front != nil && role == Primary {
		return frontPort(ctx, h.Client, es)
	}
	if p := shown(s, svc, role); p != nil && outside(svc, *p) > 0 {
		return outside(svc, *p), nil
	}
	return 0, failf(NotFound, "port", "the game of server %d has no port %s that is reached from outside", id, role)
}

// frontPort is the number by which a server is reached at the address that it shares.
func frontPort(ctx context.Context, from client.Reader, es *v1alpha1.ElasticService) (int32, error) {
	f := es.Spec.Front
	if f.Namespace != "" && f.Namespace != es.Namespace {
		return 0, failf(Conflict, "port", "players come by Service %s in namespace %s, which this API doesn't see: its port is the number", f.Service, f.Namespace)
	}
	front := &corev1.Service{}
	err := from.Get(ctx, client.ObjectKey{Namespace: es.Namespace, Name: f.Service}, front)
	if apierrors.IsNotFound(err) {
		return 0, failf(Conflict, "port", "players come by Service %s, which isn't there: an administrator makes it", f.Service)
	}
	if err != nil {
		return 0, fmt.Errorf("read the front's Service %s/%s: %w", es.Namespace, f.Service, err)
	}
	for _, p := range front.Spec.Ports {
		if f.Port == "" || p.Name == f.Port {
			return outside(front, p), nil
		}
	}
	return 0, failf(Conflict, "port", "Service %s, by which players come, has no port %s", f.Service, f.Port)
}

// showFront gives the port by which players come to a server at a front the front's number, which its
// own Service doesn't have. Where that can't be found it has none.
func showFront(ctx context.Context, from client.Reader, s *v1alpha1.Server, es *v1alpha1.ElasticService, svc *corev1.Service, ports map[string]int32) error {
	number, err := frontPort(ctx, from, es)
	if own := (*Error)(nil); err != nil && !errors.As(err, &own) {
		return err
	}
	names := []string{Primary}
	if target := es.Spec.Front.TargetPort; target != "" {
		names = append(names, target)
	} else if svc != nil {
		if p := shown(s, svc, Primary); p != nil {
			names = append(names, p.Name)
		}
	}
	for _, name := range names {
		delete(ports, name)
		if number > 0 {
			ports[name] = number
		}
	}
	return nil
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
