package devcluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"dormouse.dev/dormouse/internal/dev/devcluster/audit"
	"dormouse.dev/dormouse/internal/dev/devcluster/binaries"
	"dormouse.dev/dormouse/internal/dev/devcluster/host"
	"dormouse.dev/dormouse/internal/dev/devcluster/plan"
)

// component is one process of the cluster: what it is called, on which node it
// runs (0 is the host) and its command line.
type component struct {
	name string
	node int
	argv []string
	env  []string
	// listens is where it takes connections once it is of use, as its
	// node knows it: an address with a port, or the host's path of a socket.
	listens string
	// holder marks the process that makes and keeps a node's namespaces.
	holder bool
}

// Names of the control plane's components, for [Cluster.Kill] and the like. A
// node's components have names with its number; see [NodeComponent].
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"

	Containerd = "containerd"
	Kubelet    = "kubelet"
	KubeProxy  = "kube-proxy"
)

// NodeComponent is the name of [Containerd], [Kubelet] or [KubeProxy] on a
// node.
func NodeComponent(kind string, node int) string { return fmt.Sprintf("%s-%d", kind, node) }

func holderName(node int) string { return NodeComponent("node", node) }

// components are all processes of the cluster, in the order to start them.
func (c *Cluster) components() []component {
	all := c.controlPlane()
	for node := 1; node <= c.Nodes; node++ {
		all = append(all, c.nodeComponents(node)...)
	}
	return all
}

func (c *Cluster) component(name string) (component, error) {
	for _, comp := range c.components() {
		if comp.name == name {
			return comp, nil
		}
	}
	return component{}, fmt.Errorf("find component %q: no such component", name)
}

// kubernetes is a command line of the multi-call binary.
func (c *Cluster) kubernetes(name string, args ...string) []string {
	return append([]string{c.binary("kubernetes"), name}, args...)
}

func (c *Cluster) binary(name string) string { return filepath.Join(c.BinDir, name) }

func (c *Cluster) controlPlane() []component {
	host := c.HostAddrs()[0].String()
	return []component{
		{name: Etcd, listens: c.onHost(plan.EtcdPort), argv: c.kubernetes(Etcd, c.etcdArgs()...)},
		{name: APIServer, listens: c.onHost(plan.APIServerPort), argv: c.kubernetes(APIServer, c.apiServerArgs()...)},
		{name: ControllerManager, listens: c.onHost(10257), argv: c.kubernetes(
			ControllerManager,
			"--kubeconfig="+c.config("kube-controller-manager.kubeconfig"),
			"--authentication-kubeconfig="+c.config("kube-controller-manager.kubeconfig"),
			"--authorization-kubeconfig="+c.config("kube-controller-manager.kubeconfig"),
			"--bind-address="+host,
			"--tls-cert-file="+c.pki("kube-controller-manager.crt"),
			"--tls-private-key-file="+c.pki("kube-controller-manager.key"),
			"--client-ca-file="+c.pki("ca.crt"),
			"--requestheader-client-ca-file="+c.pki("front-proxy-ca.crt"),
			"--root-ca-file="+c.pki("ca.crt"),
			"--cluster-signing-cert-file="+c.pki("ca.crt"),
			"--cluster-signing-key-file="+c.pki("ca.key"),
			"--service-account-private-key-file="+c.pki("sa.key"),
			"--use-service-account-credentials=true",
			"--allocate-node-cidrs=false",
			"--cluster-cidr="+plan.List(c.ClusterRanges()),
			"--service-cluster-ip-range="+plan.List(c.ServiceRanges()),
			"--leader-elect=false",
			"--kube-api-qps=1000",
			"--kube-api-burst=2000",
		)},
		{name: Scheduler, listens: c.onHost(10259), argv: c.kubernetes(
			Scheduler,
			"--config="+c.config("kube-scheduler.yaml"),
			"--authentication-kubeconfig="+c.config("kube-scheduler.kubeconfig"),
			"--authorization-kubeconfig="+c.config("kube-scheduler.kubeconfig"),
			"--bind-address="+host,
			"--tls-cert-file="+c.pki("kube-scheduler.crt"),
			"--tls-private-key-file="+c.pki("kube-scheduler.key"),
		)},
	}
}

func (c *Cluster) onHost(port uint16) string {
	return netip.AddrPortFrom(c.HostAddrs()[0], port).String()
}

// etcdArgs: fsync is left out because nothing of the cluster has to survive a
// power cut.
func (c *Cluster) etcdArgs() []string {
	peer := fmt.Sprintf("https://%s:2380", c.HostAddrs()[0])
	return []string{
		"--name=dormouse",
		"--data-dir=" + c.join("etcd"),
		"--unsafe-no-fsync",
		"--listen-client-urls=" + c.EtcdURL(),
		"--advertise-client-urls=" + c.EtcdURL(),
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=dormouse=" + peer,
		"--cert-file=" + c.pki("etcd.crt"),
		"--key-file=" + c.pki("etcd.key"),
		"--trusted-ca-file=" + c.pki("etcd-ca.crt"),
		"--client-cert-auth",
		"--peer-cert-file=" + c.pki("etcd.crt"),
		"--peer-key-file=" + c.pki("etcd.key"),
		"--peer-trusted-ca-file=" + c.pki("etcd-ca.crt"),
		"--peer-client-cert-auth",
		"--log-level=warn",
	}
}

// apiServerArgs: the aggregator routes to endpoints rather than ClusterIPs, so
// that a webhook stays reachable while a node or its kube-proxy is down.
func (c *Cluster) apiServerArgs() []string {
	host := c.HostAddrs()[0].String()
	issuer := "https://kubernetes.default.svc." + plan.ClusterDomain
	return []string{
		"--advertise-address=" + host,
		"--bind-address=" + host,
		fmt.Sprintf("--secure-port=%d", plan.APIServerPort),
		"--etcd-servers=" + c.EtcdURL(),
		"--etcd-cafile=" + c.pki("etcd-ca.crt"),
		"--etcd-certfile=" + c.pki("etcd-client.crt"),
		"--etcd-keyfile=" + c.pki("etcd-client.key"),
		"--tls-cert-file=" + c.pki("kube-apiserver.crt"),
		"--tls-private-key-file=" + c.pki("kube-apiserver.key"),
		"--client-ca-file=" + c.pki("ca.crt"),
		"--kubelet-certificate-authority=" + c.pki("ca.crt"),
		"--kubelet-client-certificate=" + c.pki("kubelet-client.crt"),
		"--kubelet-client-key=" + c.pki("kubelet-client.key"),
		// Node names aren't in any DNS that the host knows.
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + c.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + c.pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + c.pki("front-proxy-client.key"),
		"--enable-aggregator-routing=true",
		"--service-account-issuer=" + issuer,
		"--service-account-jwks-uri=" + issuer + "/openid/v1/jwks",
		"--service-account-key-file=" + c.pki("sa.pub"),
		"--service-account-signing-key-file=" + c.pki("sa.key"),
		"--service-cluster-ip-range=" + plan.List(c.ServiceRanges()),
		"--authorization-mode=Node,RBAC",
		// With the second, who makes an object that keeps its owner from being
		// deleted needs the right to the owner's finalizers, as on OpenShift.
		"--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
		"--audit-policy-file=" + c.config("audit-policy.yaml"),
		"--audit-log-path=" + c.auditLog(),
		"--audit-log-maxsize=" + audit.FileMegabytes,
		"--audit-log-maxbackup=" + audit.OldFiles,
		"--allow-privileged=true",
	}
}

// nodeComponents enter the node's namespaces, where the paths and ports below
// are the node's own.
func (c *Cluster) nodeComponents(node int) []component {
	name := c.NodeName(node)
	return []component{
		{name: holderName(node), node: node, holder: true, argv: []string{
			"nsenter", "--net=" + filepath.Join(host.NamespaceDir, c.NodeNamespace(node)), "--",
			"unshare", "--mount", "--propagation=private", "--", "/bin/sh", c.node(node, "mounts.sh"),
		}},
		{name: NodeComponent(Containerd, node), node: node, listens: c.containerdSocket(node), argv: []string{
			binaries.Containerd, "--config", c.node(node, "containerd.toml"),
		}},
		{name: NodeComponent(Kubelet, node), node: node, listens: "127.0.0.1:10248", argv: c.kubernetes(
			Kubelet,
			"--config="+c.node(node, "kubelet.yaml"),
			"--kubeconfig="+c.node(node, "kubelet.kubeconfig"),
			"--hostname-override="+name,
			"--node-ip="+plan.List(c.NodeAddrs(node)),
			"--v=2",
		)},
		{name: NodeComponent(KubeProxy, node), node: node, listens: "127.0.0.1:10256", argv: c.kubernetes(
			KubeProxy,
			"--config="+c.node(node, "kube-proxy.yaml"),
		)},
	}
}

// start starts a component and records it.
func (c *Cluster) start(comp component) error {
	log, err := os.OpenFile(c.logPath(comp.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", comp.name, err)
	}
	defer log.Close()
	argv, err := c.placed(comp)
	if err != nil {
		return err
	}
	r, err := c.cgroup.Start(comp.name, argv, comp.env, log)
	if err != nil {
		return err
	}
	return c.ledger.Add(r)
}

// placed is a component's command line with what brings it into its node's
// namespaces in front.
func (c *Cluster) placed(comp component) ([]string, error) {
	if comp.node == 0 || comp.holder {
		return comp.argv, nil
	}
	holder, err := c.process(holderName(comp.node))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", comp.name, err)
	}
	if !holder.Alive() {
		return nil, fmt.Errorf("start %s: node %d's namespaces are gone", comp.name, comp.node)
	}
	nsenter := []string{"nsenter", fmt.Sprintf("--target=%d", holder.PID), "--mount", "--net", "--"}
	return append(nsenter, comp.argv...), nil
}

// process is the latest process of a component.
func (c *Cluster) process(name string) (host.Record, error) {
	processes, err := c.ledger.Processes()
	if err != nil {
		return host.Record{}, err
	}
	r, ok := processes[name]
	if !ok {
		return host.Record{}, fmt.Errorf("find process of %s: it was never started", name)
	}
	return r, nil
}

// dead names the components that should run and don't.
func (c *Cluster) dead() ([]string, error) {
	processes, err := c.ledger.Processes()
	if err != nil {
		return nil, err
	}
	var dead []string
	for _, comp := range c.components() {
		if r, ok := processes[comp.name]; !ok || !r.Alive() {
			dead = append(dead, comp.name)
		}
	}
	return dead, nil
}
