package scalewebhook

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/operator/internal/outbound"
	"dormouse.dev/dormouse/operator/internal/text"
)

const (
	// DefaultTimeout is that of an endpoint without one.
	DefaultTimeout = 5 * time.Second
	// MaxTimeout is the longest; a longer one is as this.
	MaxTimeout = 30 * time.Second
	// DefaultPath is asked where no path is given.
	DefaultPath = "/scale"
	// defaultPort is Agones' port of Services. It is asked where none is given and the Service
	// has several.
	defaultPort = 8000
)

// Endpoint is what is asked: a Service or a URL.
type Endpoint struct {
	// URL is http or https, without user and fragment. A URL without a path asks /scale.
	URL string
	// Service is a Service of the cluster. It is asked by https where there is a CABundle, by
	// http otherwise, as Agones does.
	Service *ServiceReference
	// CABundle has the authorities that may have signed the certificate, in PEM. Without one an https
	// URL is checked against those of the operator's image.
	CABundle []byte
	// Timeout is how long a question may take to the answer's last byte; 0 is DefaultTimeout.
	Timeout time.Duration
	// Format is that of question and answer; "" is FormatDormouse.
	Format Format
}

// ServiceReference names a Service's port.
type ServiceReference struct {
	// Namespace is the Review's if it is empty.
	Namespace, Name string
	// Port is the Service's, by number. 0 is the only TCP port, or 8000 where there are several.
	Port int32
	// Path may lack its leading slash, and may have a query. "" asks /scale.
	Path string
}

// endpointKey tells endpoints apart. What differs in anything shares no state, and
// neither do two namespaces that ask the same.
type endpointKey struct {
	namespace string
	url       string
	service   ServiceReference
	ca        [sha256.Size]byte
	timeout   time.Duration
	format    Format
}

func keyOf(namespace string, e Endpoint) endpointKey {
	key := endpointKey{
		namespace: namespace, url: e.URL, ca: sha256.Sum256(e.CABundle), timeout: e.timeout(), format: e.Format,
	}
	if e.Service != nil {
		key.service = *e.Service
	}
	return key
}

func (e Endpoint) timeout() time.Duration {
	if e.Timeout <= 0 {
		return DefaultTimeout
	}
	return min(e.Timeout, MaxTimeout)
}

// authorities returns those of the CABundle, nil without one.
func (e Endpoint) authorities() (*x509.CertPool, error) {
	if len(e.CABundle) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(e.CABundle) {
		return nil, failure(BadEndpoint, "caBundle has no certificate in PEM")
	}
	return pool, nil
}

// target is where a question goes.
type target struct {
	// url is what is dialled and asked. Its host is an address for a Service.
	url *url.URL
	// host is the Host header of a Service, and the name that its certificate must have. It has no port.
	// It is empty for a URL, where the URL says both.
	host string
	// name is what people call it: no query, no user.
	name string
}

// lookup returns where an endpoint's questions go now. Nothing is sent.
func (c *Client) lookup(ctx context.Context, namespace string, e Endpoint) (target, error) {
	switch {
	case e.URL != "" && e.Service != nil:
		return target{}, failure(BadEndpoint, "The webhook has a URL and a Service: name one of them")
	case e.URL != "":
		return urlTarget(e, c.options.Addresses)
	case e.Service == nil:
		return target{}, failure(BadEndpoint, "The webhook has neither a URL nor a Service: name one of them")
	}
	ref := *e.Service
	if ref.Namespace == "" {
		ref.Namespace = namespace
	}
	var svc *corev1.Service
	if c.options.Services != nil {
		var err error
		if svc, err = c.options.Services(ctx, ref.Namespace, ref.Name); err != nil {
			return target{}, &Error{
				Reason: ServiceNotFound, cause: err,
				Message: text.Plain(fmt.Sprintf("Service %s/%s can't be read: %v", ref.Namespace, ref.Name, err), maxMessage),
			}
		}
	}
	// Whether there is one is not for other namespaces to find out.
	if ref.Namespace != namespace && (svc == nil || c.options.MayUse == nil || !c.options.MayUse(svc, namespace)) {
		return target{}, failure(NotAllowed, "Service %s/%s may not be asked from namespace %s: its owner must allow that, or name one of your own namespace",
			ref.Namespace, ref.Name, namespace)
	}
	if svc == nil {
		return target{}, failure(ServiceNotFound, "There is no Service %s/%s", ref.Namespace, ref.Name)
	}
	return serviceTarget(ref, svc, len(e.CABundle) > 0)
}

// urlTarget refuses early what could not be dialled anyway, so that no name is resolved for
// it and its circuit never opens. It isn't the check: see outbound.Addresses.Control.
func urlTarget(e Endpoint, addresses outbound.Addresses) (target, error) {
	u, err := url.Parse(e.URL)
	// The error would quote the URL, and with it a password that is in there.
	if err != nil || u.Host == "" || u.Hostname() == "" {
		return target{}, failure(BadEndpoint, "The webhook's URL is none, or lacks a host: it is like https://host.example:8443/scale")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return target{}, failure(BadEndpoint, "The webhook's URL must begin with http:// or https://")
	case u.User != nil:
		return target{}, failure(BadEndpoint, "The webhook's URL may not have a user or password")
	case u.Fragment != "":
		return target{}, failure(BadEndpoint, "The webhook's URL may not have a fragment (#)")
	case u.Scheme == "http" && len(e.CABundle) > 0:
		return target{}, failure(BadEndpoint, "There is a caBundle, but the webhook's URL begins with http://: make it https://, or remove the caBundle")
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		addr = netip.Addr{}
	}
	if refused := addresses.Early(addr); refused != nil {
		return target{}, failure(NotAllowed, "%s", refused.Error())
	}
	if u.Path == "" {
		u.Path = DefaultPath
	}
	return target{url: u, name: nameOf(u.Scheme, u.Host, u.Path)}, nil
}

func serviceTarget(ref ServiceReference, svc *corev1.Service, secure bool) (target, error) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return target{}, failure(NotAllowed, "Service %s/%s is of type ExternalName, which leads out of the cluster: name a Service with a ClusterIP",
			ref.Namespace, ref.Name)
	}
	addr, err := netip.ParseAddr(svc.Spec.ClusterIP)
	if err != nil {
		return target{}, failure(NotAllowed, "Service %s/%s has no ClusterIP, as headless ones have none: name a Service with a ClusterIP",
			ref.Namespace, ref.Name)
	}
	port, err := servicePort(ref, svc)
	if err != nil {
		return target{}, err
	}
	scheme := "http"
	if secure {
		scheme = "https"
	}
	path := ref.Path
	if path == "" {
		path = DefaultPath
	}
	escaped, query, _ := strings.Cut("/"+strings.TrimPrefix(path, "/"), "?")
	if path, err = url.PathUnescape(escaped); err != nil {
		return target{}, failure(BadEndpoint, "The webhook's path has a '%%' that two hexadecimal digits don't follow: write %%25 for it")
	}
	host := fmt.Sprintf("%s.%s.svc", svc.Name, svc.Namespace)
	return target{
		url:  &url.URL{Scheme: scheme, Host: netip.AddrPortFrom(addr, port).String(), Path: path, RawPath: escaped, RawQuery: query},
		host: host,
		name: nameOf(scheme, net.JoinHostPort(host, strconv.Itoa(int(port))), path),
	}, nil
}

// servicePort returns the port that is asked, which must be one of the Service's: kube-proxy
// leads others nowhere.
func servicePort(ref ServiceReference, svc *corev1.Service) (uint16, error) {
	var ports []int32
	for _, p := range svc.Spec.Ports {
		if p.Protocol == corev1.ProtocolTCP || p.Protocol == "" {
			ports = append(ports, p.Port)
		}
	}
	want := ref.Port
	if want == 0 {
		want = defaultPort
		if len(ports) == 1 {
			want = ports[0]
		}
	}
	if slices.Contains(ports, want) && want > 0 && want <= 65535 {
		return uint16(want), nil
	}
	return 0, failure(BadEndpoint, "Service %s/%s has no TCP port %d, but %v", ref.Namespace, ref.Name, want, ports)
}

func nameOf(scheme, host, path string) string {
	return text.Plain((&url.URL{Scheme: scheme, Host: host, Path: path}).String(), maxQuoted)
}
