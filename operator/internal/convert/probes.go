package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Bounds of an HTTPProbe.
const (
	maxProbes  = 16
	maxMatches = 8
	maxName    = 64
	maxValue   = 256
	maxPath    = 512
	maxBody    = 2048
	minStatus  = 200
	maxStatus  = 599
)

// Types of a match. KubeElasti takes any other for the first that a field may have.
const (
	matchExact  = "Exact"
	matchRegexp = "RegularExpression"
)

// What an HTTPProbe's texts may be, as its validation has it.
var (
	validPath  = regexp.MustCompile(`^/[!$-;=@-Z_a-z~]*$`)
	validField = regexp.MustCompile("^[-!#$%&*+.^_|~0-9A-Za-z]+$")
	validValue = regexp.MustCompile(`^[!-~]([ -~]*[!-~])?$`)
	validText  = regexp.MustCompile(`^[ -~]+$`)
	longRepeat = regexp.MustCompile(`[{]([0-9]+,)?[0-9]{3}`)
)

// probes converts the rules about which requests are answered while the service sleeps. One that
// has no counterpart is left out: what it would have answered wakes the service.
func (c *conversion) probes(to *specOut, rules []elastiProbe, service *corev1.Service) {
	var all []v1alpha1.HTTPProbe
	for i, rule := range rules {
		path := fmt.Sprintf("spec.probeResponse[%d]", i)
		if len(all) == maxProbes {
			c.note(path, "a port has %d probes at most, and this one and those after it are left out", maxProbes)
			break
		}
		probe, why := probeOf(rule)
		if why != "" {
			c.note(path, "%s; the rule is left out, and its requests wake the service", why)
			continue
		}
		if rule.Method == "" {
			c.note(path+".method", "it is missing, which is any method there, and GET and HEAD here")
		}
		all = append(all, probe)
	}
	if len(all) == 0 {
		return
	}
	if name, ok := c.port(service); ok {
		to.Ports = []portOut{{Name: name, Protocol: v1alpha1.ProtocolHTTP, Asleep: asleepOut{all}}}
	}
}

// port is the name of the Service's port that has the probes, if there is one that can have them.
func (c *conversion) port(service *corev1.Service) (name string, ok bool) {
	const path = "spec.probeResponse"
	if service == nil || len(service.Spec.Ports) == 0 {
		c.note(path, "it becomes spec.ports[0].asleep.probes; write the port's name in the Service as spec.ports[0].name, which is empty only for a single port without one")
		return "", true
	}
	best := slices.MaxFunc(service.Spec.Ports, func(a, b corev1.ServicePort) int { return cmp.Compare(plainHTTP(a), plainHTTP(b)) })
	if plainHTTP(best) == 0 {
		c.note(path, "the Service has no port for HTTP without TLS; the rules are left out, and their requests wake the service")
		return "", false
	}
	if len(service.Spec.Ports) > 1 {
		c.note(path, "it becomes spec.ports[0].asleep.probes of the port %q alone; the Service has others", best.Name)
	}
	return best.Name, true
}

// plainHTTP ranks a port by how surely it is one for HTTP without TLS. 0 is one that isn't.
func plainHTTP(p corev1.ServicePort) int {
	app := strings.ToLower(ptr.Deref(p.AppProtocol, ""))
	switch {
	case cmp.Or(p.Protocol, corev1.ProtocolTCP) != corev1.ProtocolTCP, strings.HasPrefix(p.Name, "https"), app == "https":
		return 0
	case p.Name == "http", app == "http":
		return 4
	case strings.HasPrefix(p.Name, "http-"):
		return 3
	case strings.HasPrefix(p.Name, "http"):
		return 2
	default:
		return 1
	}
}

// probeOf converts a rule. why is why it has no counterpart.
func probeOf(rule elastiProbe) (p v1alpha1.HTTPProbe, why string) {
	switch method := strings.ToUpper(strings.TrimSpace(rule.Method)); method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost:
		p.Method = v1alpha1.HTTPProbeMethod(method)
	default:
		return p, fmt.Sprintf("the method %s can't be answered", method)
	}
	match := elastiMatch{}
	if rule.Path != nil {
		match = *rule.Path
	}
	switch {
	case is(match.Type, matchRegexp):
		p.PathRegex, why = regex("path", match.Value)
	case is(match.Type, matchExact):
		p.Path, why = match.Value, plainPath(match.Value)
	case match.Value == "":
		p.PathPrefix = "/"
	default:
		p.PathPrefix, why = match.Value, plainPath(match.Value)
	}
	if why != "" {
		return p, why
	}
	if len(rule.Headers) > maxMatches || len(rule.QueryParams) > maxMatches {
		return p, fmt.Sprintf("it has more than %d headers or parameters of the query", maxMatches)
	}
	for _, h := range rule.Headers {
		m := v1alpha1.HTTPHeaderMatch{Name: h.Name}
		switch {
		case len(h.Name) > maxName || !validField.MatchString(h.Name):
			return p, fmt.Sprintf("%q is no name of a header with %d characters at most", h.Name, maxName)
		case is(h.Type, matchRegexp):
			m.Regex, why = regex("header "+h.Name, h.Value)
		case len(h.Value) > maxValue || !validValue.MatchString(h.Value):
			return p, fmt.Sprintf("the header %s must have from 1 to %d visible characters", h.Name, maxValue)
		default:
			m.Value = h.Value
		}
		if why != "" {
			return p, why
		}
		p.Headers = append(p.Headers, m)
	}
	for _, q := range rule.QueryParams {
		m := v1alpha1.HTTPQueryParamMatch{Name: q.Name}
		switch {
		case len(q.Name) > maxName || !validText.MatchString(q.Name):
			return p, fmt.Sprintf("the parameter %q must have a name of up to %d visible characters", q.Name, maxName)
		case is(q.Type, matchRegexp):
			m.Regex, why = regex("parameter "+q.Name, q.Value)
		case q.Value == "":
			m.Regex = "^$"
		case len(q.Value) > maxValue || !validText.MatchString(q.Value):
			return p, fmt.Sprintf("the parameter %s must have up to %d visible characters", q.Name, maxValue)
		default:
			m.Value = q.Value
		}
		if why != "" {
			return p, why
		}
		p.QueryParams = append(p.QueryParams, m)
	}
	p.Response, why = reply(rule.Response)
	return p, why
}

func is(kind, want string) bool { return strings.EqualFold(strings.TrimSpace(kind), want) }

func plainPath(path string) (why string) {
	if len(path) > maxPath || !validPath.MatchString(path) {
		return fmt.Sprintf("the path %q must begin with '/' and have up to %d characters, without spaces, '?' and '#'", path, maxPath)
	}
	return ""
}

func regex(of, pattern string) (same v1alpha1.HTTPRegex, why string) {
	if _, err := regexp.Compile(pattern); err != nil || len(pattern) > maxValue || !validText.MatchString(pattern) {
		return "", fmt.Sprintf("the regular expression of the %s, %q, must be one of RE2 with up to %d visible characters", of, pattern, maxValue)
	}
	if longRepeat.MatchString(pattern) {
		return "", fmt.Sprintf("the regular expression of the %s, %q, must not repeat anything 100 times or more", of, pattern)
	}
	return v1alpha1.HTTPRegex(pattern), ""
}

// reply converts an answer.
func reply(from elastiProbeReply) (to v1alpha1.HTTPProbeResponse, why string) {
	to.Status = from.Status
	if json.Unmarshal(from.Body, &to.Body) != nil {
		to.Body = string(from.Body)
	}
	switch {
	case to.Status == http.StatusNoContent, to.Status == http.StatusResetContent, to.Status == http.StatusNotModified:
		to.Body = "" // these have none
	case to.Status != 0 && (to.Status < minStatus || to.Status > maxStatus):
		return to, fmt.Sprintf("the status %d must be from %d to %d", to.Status, minStatus, maxStatus)
	}
	if len(to.Body) > maxBody {
		return to, fmt.Sprintf("the body has %d bytes, and an answer's at most %d", len(to.Body), maxBody)
	}
	return to, ""
}
