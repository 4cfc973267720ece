package promquery

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/outbound"
)

// route is how a server is reached.
type route struct {
	// clusterIP is dialled where the server is a Service; empty: what its URL says.
	clusterIP string
}

// parse reads a server's address, which the API server has checked.
func parse(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		// The error would quote the URL.
		return nil, outbound.Failure(outbound.NotAllowed, "serverAddress is no URL such as http://prometheus.monitoring.svc:9090: correct it")
	}
	return u, nil
}

// find finds out how a server may be reached from a namespace.
func (c *Client) find(ctx context.Context, namespace string, u *url.URL) (route, error) {
	if of, name, ok := serviceOf(u.Hostname()); ok {
		svc, err := c.options.Services(ctx, of, name)
		if err != nil {
			return route{}, outbound.Failure(outbound.Unreachable, "Service %s/%s can't be read: %v", of, name, err)
		}
		mayAsk := of == namespace || svc != nil && wellknown.NamesNamespace(svc.Annotations[wellknown.TriggerNamespacesAnnotation], namespace)
		if svc != nil && mayAsk {
			if ip, err := netip.ParseAddr(svc.Spec.ClusterIP); err == nil && svc.Spec.Type != corev1.ServiceTypeExternalName {
				return serviceRoute(svc, ip, u)
			}
		}
		// Whether there is one is not for other namespaces to find out, by DNS either.
		if !mayAsk || len(c.options.Addresses.Networks) == 0 {
			return route{}, outbound.Failure(outbound.NotAllowed,
				"%s is no Service with a ClusterIP that namespace %s may ask: correct it, have its owner allow that by the annotation dormouse.dev/trigger-namespaces, or, if it is headless, have the administrator allow its address as well",
				u.Host, namespace)
		}
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		addr = netip.Addr{}
	}
	// It isn't the check, which is of what is dialled, but it resolves no name in vain.
	return route{}, c.options.Addresses.Early(addr)
}

// addressOf is a server's name and port in the one way of many to write it, so that bounds hold for all.
func addressOf(u *url.URL) string {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return net.JoinHostPort(host, portOf(u))
}

// portOf is the port of a URL.
func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return strings.TrimLeft(port, "0")
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// serviceOf reads a Service's name in DNS: NAME.NAMESPACE.svc, and maybe the cluster's domain.
func serviceOf(host string) (namespace, name string, ok bool) {
	labels := strings.Split(strings.ToLower(strings.TrimSuffix(host, ".")), ".")
	if len(labels) < 3 || labels[2] != "svc" {
		return "", "", false
	}
	return labels[1], labels[0], true
}

// serviceRoute leads to a Service's port. Others lead nowhere, or to the node's own programs.
func serviceRoute(svc *corev1.Service, ip netip.Addr, u *url.URL) (route, error) {
	port := portOf(u)
	has := slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
		return strconv.Itoa(int(p.Port)) == port && (p.Protocol == corev1.ProtocolTCP || p.Protocol == "")
	})
	if !has {
		return route{}, outbound.Failure(outbound.NotAllowed, "Service %s/%s has no TCP port %s: correct serverAddress", svc.Namespace, svc.Name, port)
	}
	return route{clusterIP: net.JoinHostPort(ip.String(), port)}, nil
}

// dial dials along a route, and checks each address right before.
func (r route) dial(addresses outbound.Addresses) outbound.Dial {
	dialer := &net.Dialer{
		Timeout:        queryTime,
		ControlContext: addresses.Control(r.clusterIP != ""),
		// Go's own resolver takes no threads, and doesn't read 0x7f.1 as an address.
		Resolver: &net.Resolver{PreferGo: true},
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if r.clusterIP != "" {
			address = r.clusterIP
		}
		return dialer.DialContext(ctx, network, address)
	}
}
