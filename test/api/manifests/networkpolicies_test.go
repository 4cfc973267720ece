package manifests_test

import (
	"maps"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dormouse.dev/dormouse/test/api/fixture"
)

// peer is an end of a flow: a pod, or an address that is no pod's.
type peer struct {
	namespace       string
	namespaceLabels map[string]string
	labels          map[string]string
	address         string
}

func podIn(namespace string, podLabels map[string]string, more ...map[string]string) peer {
	p := peer{namespace: namespace, labels: podLabels, address: "10.244.1.9", namespaceLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	for _, m := range more {
		maps.Copy(p.namespaceLabels, m)
	}
	return p
}

func app(name string) map[string]string { return map[string]string{"app.kubernetes.io/name": name} }

var (
	operator   = podIn("dormouse-system", app("dormouse-operator"))
	resolver   = podIn("dormouse-system", app("dormouse-resolver"))
	restAPI    = podIn("dormouse-system", app("dormouse-api"))
	intruder   = podIn("dormouse-system", app("something-else"))
	impostor   = podIn("games", app("dormouse-resolver"))
	stranger   = podIn("default", map[string]string{"app": "shop"})
	lobby      = podIn("games", map[string]string{"app": "lobby"})
	neighbour  = podIn("games", map[string]string{"app": "shop"})
	arena      = podIn("games", map[string]string{"dormouse.dev/server": "arena-x7x2p", "dormouse.dev/fleet": "arena"})
	elsewhere  = podIn("others", map[string]string{"dormouse.dev/server": "pit"})
	prometheus = podIn("monitoring", app("prometheus"), map[string]string{"dormouse.dev/metrics": "enabled"})
	unlabelled = podIn("monitoring", app("prometheus"))
	sidecar    = podIn("games", map[string]string{"dormouse.dev/server": "lobby-1"})
	files      = podIn("games", map[string]string{"dormouse.dev/files": "lobby-1", "dormouse.dev/disks": "lobby-1"})
	copying    = podIn("games", map[string]string{"app.kubernetes.io/managed-by": "dormouse.dev", "dormouse.dev/backup": "one", "dormouse.dev/disks": "lobby-1"})
	restoring  = podIn("games", map[string]string{"app.kubernetes.io/managed-by": "dormouse.dev", "dormouse.dev/disks": "lobby-1"})
	dns        = podIn("kube-system", map[string]string{"k8s-app": "kube-dns"})
	player     = peer{address: "203.0.113.7"}
	apiServer  = peer{address: "192.0.2.1"}
	nodeDNS    = peer{address: "169.254.20.10"}
	internet   = peer{address: "198.51.100.1"}
)

// TestTheNetworkPoliciesLetInWhatIsNeededAndNothingElse evaluates the policies:
// the cluster of the tests enforces none.
func TestTheNetworkPoliciesLetInWhatIsNeededAndNothingElse(t *testing.T) {
	policies := policiesOf(t, build(t, withComponent(t, fixture.Path("config", "components", "network-policies"))))
	for _, sample := range build(t, fixture.Path("config", "samples")) {
		sample.SetNamespace("games")
		policies = append(policies, policiesOf(t, []*unstructured.Unstructured{sample})...)
	}
	if len(policies) != 8 {
		t.Fatalf("%d policies, want 4 of the component and 4 of the samples", len(policies))
	}
	const tcp, udp = corev1.ProtocolTCP, corev1.ProtocolUDP
	for name, c := range map[string]struct {
		from, to peer
		protocol corev1.Protocol
		port     int32
		open     bool
	}{
		"a resolver wakes":                         {resolver, operator, tcp, 8080, true},
		"a sidecar reports":                        {sidecar, operator, tcp, 8080, true},
		"a sidecar calls a resolver's port":        {sidecar, resolver, tcp, 8080, false},
		"an operator asks another":                 {operator, operator, tcp, 8080, true},
		"an operator asks a resolver":              {operator, resolver, tcp, 8080, true},
		"prometheus scrapes the operator":          {prometheus, operator, tcp, 8080, true},
		"prometheus scrapes the resolver":          {prometheus, resolver, tcp, 8080, true},
		"a player's first TCP port":                {player, resolver, tcp, 10000, true},
		"a player's last TCP port":                 {player, resolver, tcp, 29999, true},
		"a player's UDP port":                      {player, resolver, udp, 12345, true},
		"a pod that plays":                         {stranger, resolver, tcp, 10000, true},
		"a resolver asks the cluster's DNS":        {resolver, dns, udp, 53, true},
		"an operator asks the cluster's DNS":       {operator, dns, udp, 53, true},
		"a resolver asks its node's DNS":           {resolver, nodeDNS, udp, 53, true},
		"an operator asks the API server":          {operator, apiServer, tcp, 6443, true},
		"a resolver asks the API server":           {resolver, apiServer, tcp, 443, true},
		"a resolver brings a player to a game":     {resolver, lobby, tcp, 7000, true},
		"an operator asks a game's trigger":        {operator, lobby, tcp, 8080, true},
		"a resolver brings a player to any game":   {resolver, stranger, udp, 34197, true},
		"an operator asks any trigger":             {operator, stranger, tcp, 9, true},
		"an operator asks an autoscaler's webhook": {operator, neighbour, tcp, 8000, true},
		"an operator asks one outside by HTTPS":    {operator, internet, tcp, 443, true},
		"an operator asks one on another port":     {operator, internet, tcp, 8000, false},
		"a player comes to the game directly":      {player, lobby, tcp, 7000, true},
		"a stranger calls the wake endpoint":       {stranger, operator, tcp, 8080, false},
		"a player calls the wake endpoint":         {player, operator, tcp, 8080, false},
		"an impostor calls the wake endpoint":      {impostor, operator, tcp, 8080, false},
		"an intruder calls the wake endpoint":      {intruder, operator, tcp, 8080, false},
		"a stranger reads a resolver's sessions":   {stranger, resolver, tcp, 8080, false},
		"a player reads a resolver's sessions":     {player, resolver, tcp, 8080, false},
		"a resolver reads another's sessions":      {resolver, resolver, tcp, 8080, false},
		"a scraper without the label":              {unlabelled, operator, tcp, 8080, false},
		"a scraper on another of its ports":        {prometheus, operator, tcp, 10000, false},
		"below the players' ports":                 {player, resolver, tcp, 9999, false},
		"above the players' TCP ports":             {player, resolver, tcp, 30000, false},
		"above the players' UDP ports":             {player, resolver, udp, 30000, false},
		"players' ports of the operator":           {player, operator, tcp, 10000, false},
		"something else in the system namespace":   {stranger, intruder, tcp, 80, false},
		"something else that calls out":            {intruder, internet, tcp, 443, false},
		"an operator calls the internet":           {operator, internet, tcp, 80, false},
		"an operator sends datagrams to a game":    {operator, lobby, udp, 7000, false},
		"a resolver calls the internet":            {resolver, internet, tcp, 80, false},
		"a resolver sends datagrams far away":      {resolver, internet, udp, 7000, false},
		"a resolver asks a game's trigger":         {resolver, lobby, tcp, 8080, false},
		"a player asks a game's trigger":           {player, lobby, tcp, 8080, false},
		"a neighbour asks a game's trigger":        {neighbour, lobby, tcp, 8080, false},
		"an impostor in the namespace of a game":   {impostor, lobby, tcp, 8080, false},
		"a game that nothing guards stays as is":   {player, neighbour, tcp, 80, true},
		"what the system namespace doesn't touch":  {stranger, internet, tcp, 443, true},
		"a guarded game's sidecar reports":         {arena, operator, tcp, 8080, true},
		"any other game's sidecar reports":         {elsewhere, operator, tcp, 8080, true},
		"a guarded game's sidecar asks DNS":        {arena, dns, udp, 53, true},
		"a player comes to a guarded Server":       {player, arena, udp, 7000, true},
		"a player calls a guarded Server's HTTP":   {player, arena, tcp, 8080, false},
		"a resolver brings a player to a Server":   {resolver, arena, udp, 7000, true},
		"prometheus scrapes a sidecar":             {prometheus, arena, tcp, 9359, true},
		"a stranger reads a sidecar's metrics":     {stranger, arena, tcp, 9359, false},
		"a guarded game calls the internet":        {arena, internet, tcp, 443, false},
		"a guarded game calls the API server":      {arena, apiServer, tcp, 6443, false},
		"a sidecar calls a resolver":               {arena, resolver, tcp, 8080, false},
		"a panel calls the API":                    {player, restAPI, tcp, 8080, true},
		"a guarded game calls the API":             {arena, restAPI, tcp, 8080, true},
		"a game calls the API's other port":        {sidecar, restAPI, tcp, 8081, false},
		"prometheus scrapes the API":               {prometheus, restAPI, tcp, 8081, true},
		"the API asks DNS":                         {restAPI, dns, udp, 53, true},
		"the API asks the API server":              {restAPI, apiServer, tcp, 6443, true},
		"the API tells a sidecar":                  {restAPI, sidecar, tcp, 9359, true},
		"the API tells a guarded sidecar":          {restAPI, arena, tcp, 9359, true},
		"the API calls a game itself":              {restAPI, sidecar, tcp, 7000, false},
		"the API calls a pod that is no Server's":  {restAPI, stranger, tcp, 9359, false},
		"the API calls the operator":               {restAPI, operator, tcp, 8080, false},
		"the API calls the internet":               {restAPI, internet, tcp, 80, false},
		"a resolver brings a client to the files":  {resolver, files, tcp, 2022, true},
		"a client comes to the files directly":     {player, files, tcp, 2022, false},
		"a neighbour comes to the files":           {neighbour, files, tcp, 2022, false},
		"a resolver reads the files' metrics":      {resolver, files, tcp, 9359, false},
		"prometheus scrapes what serves files":     {prometheus, files, tcp, 9359, true},
		"what serves files calls the API server":   {files, apiServer, tcp, 6443, false},
		"what serves files asks DNS":               {files, dns, udp, 53, false},
		"a Backup writes to a bucket":              {copying, internet, tcp, 443, true},
		"a Backup asks DNS":                        {copying, dns, udp, 53, true},
		"a Backup asks its node's DNS":             {copying, nodeDNS, tcp, 53, true},
		"a Backup calls elsewhere":                 {copying, internet, tcp, 80, false},
		"a Backup calls the operator":              {copying, operator, tcp, 8080, false},
		"a neighbour calls a Backup":               {neighbour, copying, tcp, 443, false},
		"a Restore reads from a bucket":            {restoring, internet, tcp, 443, true},
		"a Restore asks DNS":                       {restoring, dns, udp, 53, true},
		"a Restore calls elsewhere":                {restoring, internet, tcp, 80, false},
		"a sidecar on the operator's other ports":  {arena, operator, tcp, 8081, false},
	} {
		t.Run(name, func(t *testing.T) {
			if open := flows(policies, c.from, c.to, c.protocol, c.port); open != c.open {
				t.Errorf("open: %t, want %t", open, c.open)
			}
		})
	}
}

// flows reports whether the policies let a flow out of where it comes from, and in
// to where it goes, as Kubernetes defines them: a pod that any policy of a
// direction selects is closed but for what one of those policies says.
func flows(policies []networkingv1.NetworkPolicy, from, to peer, protocol corev1.Protocol, port int32) bool {
	out, in := verdict{open: true}, verdict{open: true}
	for _, p := range policies {
		for _, direction := range p.Spec.PolicyTypes {
			switch direction {
			case networkingv1.PolicyTypeEgress:
				if selects(p, from) {
					var rules []rule
					for _, r := range p.Spec.Egress {
						rules = append(rules, rule{r.To, r.Ports})
					}
					out.decide(p.Namespace, rules, to, protocol, port)
				}
			case networkingv1.PolicyTypeIngress:
				if selects(p, to) {
					var rules []rule
					for _, r := range p.Spec.Ingress {
						rules = append(rules, rule{r.From, r.Ports})
					}
					in.decide(p.Namespace, rules, from, protocol, port)
				}
			}
		}
	}
	return out.open && in.open
}

// rule is one of either direction.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

// verdict is open until a policy selects the pod, and then if a rule says so.
type verdict struct{ open, selected bool }

func (v *verdict) decide(namespace string, rules []rule, other peer, protocol corev1.Protocol, port int32) {
	if !v.selected {
		v.open, v.selected = false, true
	}
	for _, r := range rules {
		if matchesPeer(namespace, r.peers, other) && matchesPort(r.ports, protocol, port) {
			v.open = true
		}
	}
}

func selects(p networkingv1.NetworkPolicy, pod peer) bool {
	return pod.namespace != "" && pod.namespace == p.Namespace && matches(&p.Spec.PodSelector, pod.labels)
}

func matchesPeer(namespace string, peers []networkingv1.NetworkPolicyPeer, other peer) bool {
	if len(peers) == 0 {
		return true
	}
	for _, p := range peers {
		if p.IPBlock != nil {
			// Whether a block means pods too is the network plugin's choice; here
			// it doesn't.
			if other.namespace == "" && netip.MustParsePrefix(p.IPBlock.CIDR).Contains(netip.MustParseAddr(other.address)) {
				return true
			}
			continue
		}
		if other.namespace == "" {
			continue
		}
		inNamespace := other.namespace == namespace
		if p.NamespaceSelector != nil {
			inNamespace = matches(p.NamespaceSelector, other.namespaceLabels)
		}
		if inNamespace && (p.PodSelector == nil || matches(p.PodSelector, other.labels)) {
			return true
		}
	}
	return false
}

func matchesPort(ports []networkingv1.NetworkPolicyPort, protocol corev1.Protocol, port int32) bool {
	if len(ports) == 0 {
		return true
	}
	for _, p := range ports {
		if *p.Protocol != protocol {
			continue
		}
		if p.Port == nil {
			return true
		}
		first := p.Port.IntVal
		last := first
		if p.EndPort != nil {
			last = *p.EndPort
		}
		if p.Port.Type == intstr.Int && first <= port && port <= last {
			return true
		}
	}
	return false
}

func matches(selector *metav1.LabelSelector, set map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(set))
}

func policiesOf(t *testing.T, objects []*unstructured.Unstructured) []networkingv1.NetworkPolicy {
	t.Helper()
	var policies []networkingv1.NetworkPolicy
	for _, o := range objects {
		if o.GetKind() != "NetworkPolicy" {
			continue
		}
		var p networkingv1.NetworkPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &p); err != nil {
			t.Fatalf("read NetworkPolicy %s: %v", o.GetName(), err)
		}
		policies = append(policies, p)
	}
	return policies
}
