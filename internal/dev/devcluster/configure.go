package devcluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"dormouse.dev/dormouse/internal/dev/devcluster/audit"
	"dormouse.dev/dormouse/internal/dev/devcluster/pki"
	"dormouse.dev/dormouse/internal/dev/devcluster/plan"
)

// configure writes every certificate and configuration file of the cluster.
func (c *Cluster) configure() error {
	for _, dir := range c.directories() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make directory %s: %w", dir, err)
		}
	}
	for _, secret := range []string{"pki", "etcd"} {
		if err := os.Chmod(c.join(secret), 0o700); err != nil {
			return fmt.Errorf("protect %s: %w", secret, err)
		}
	}
	if err := c.certify(); err != nil {
		return err
	}
	files, err := c.files()
	if err != nil {
		return err
	}
	for path, content := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make directory for %s: %w", path, err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}

// files are the configuration files by their paths.
func (c *Cluster) files() (map[string][]byte, error) {
	files := map[string][]byte{}
	objects := map[string]object{
		c.config("kube-scheduler.yaml"): c.schedulerConfig(),
		c.config("audit-policy.yaml"):   audit.Policy(),
		c.config("local-path-pod.yaml"): helperPod(),
	}
	provisioner, err := c.provisionerConfig().encodeJSON()
	if err != nil {
		return nil, err
	}
	files[c.config("local-path.json")] = provisioner
	for node := 1; node <= c.Nodes; node++ {
		objects[c.node(node, "kubelet.yaml")] = c.kubeletConfig(node)
		objects[c.node(node, "kube-proxy.yaml")] = c.kubeProxyConfig(node)
		files[c.node(node, "containerd.toml")] = []byte(c.containerdConfig(node))
		files[c.node(node, "mounts.sh")] = []byte(c.mountScript(node))
		files[c.node(node, "resolv.conf")] = []byte(resolvConf)
		for name, value := range sysctls {
			files[c.node(node, "sysctl", sysctlFile(name))] = []byte(value + "\n")
		}
		cni, err := c.cniConfig(node).encodeJSON()
		if err != nil {
			return nil, err
		}
		files[c.node(node, "cni", "10-dormouse.conflist")] = cni
	}
	for path, o := range objects {
		content, err := o.encode()
		if err != nil {
			return nil, err
		}
		files[path] = content
	}
	return files, nil
}

// certify makes the authorities, everyone's certificate and the kubeconfigs.
// etcd and the aggregator have authorities of their own: a certificate for the
// one must not open the other.
func (c *Cluster) certify() error {
	authorities := map[string]*pki.Authority{}
	for _, name := range []string{"ca", "etcd-ca", "front-proxy-ca"} {
		made, err := pki.NewAuthority("dormouse-devcluster-" + name)
		if err != nil {
			return err
		}
		if err := made.Save(c.join("pki"), name); err != nil {
			return err
		}
		authorities[name] = made
	}
	for _, cert := range c.certificates() {
		issued, err := authorities[cert.authority].Issue(cert.identity)
		if err != nil {
			return err
		}
		if err := issued.Save(c.join("pki"), cert.name); err != nil {
			return err
		}
		if cert.kubeconfig == "" {
			continue
		}
		if err := c.writeKubeconfig(cert.kubeconfig, authorities["ca"], issued); err != nil {
			return err
		}
	}
	private, public, err := pki.NewTokenKey()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"sa.key": private, "sa.pub": public} {
		if err := os.WriteFile(c.pki(name), content, 0o600); err != nil {
			return fmt.Errorf("save %s: %w", name, err)
		}
	}
	return nil
}

// certificate is one to be issued, with the kubeconfig that it goes into.
type certificate struct {
	name, authority string
	identity        pki.Identity
	kubeconfig      string
}

func (c *Cluster) certificates() []certificate {
	host := c.HostAddrs()
	certs := []certificate{
		{name: "etcd", authority: "etcd-ca", identity: pki.Identity{User: "etcd", Addrs: host}},
		{name: "etcd-client", authority: "etcd-ca", identity: pki.Identity{User: "kube-apiserver"}},
		{name: "front-proxy-client", authority: "front-proxy-ca", identity: pki.Identity{User: "front-proxy-client"}},
		{name: "kubelet-client", authority: "ca", identity: pki.Identity{User: kubeletClient}},
		{name: "kube-apiserver", authority: "ca", identity: pki.Identity{
			User: "kube-apiserver",
			Names: []string{
				"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + plan.ClusterDomain,
			},
			Addrs: append(append([]netip.Addr{}, host...), c.KubernetesAddrs()...),
		}},
		{name: "admin", authority: "ca", kubeconfig: c.Kubeconfig(), identity: pki.Identity{
			User: "dormouse-admin", Groups: []string{"system:masters"},
		}},
		{name: "kube-controller-manager", authority: "ca", kubeconfig: c.config("kube-controller-manager.kubeconfig"), identity: pki.Identity{
			User: "system:kube-controller-manager", Addrs: host,
		}},
		{name: "kube-scheduler", authority: "ca", kubeconfig: c.config("kube-scheduler.kubeconfig"), identity: pki.Identity{
			User: "system:kube-scheduler", Addrs: host,
		}},
		{name: "kube-proxy", authority: "ca", kubeconfig: c.config("kube-proxy.kubeconfig"), identity: pki.Identity{
			User: "system:kube-proxy",
		}},
	}
	for node := 1; node <= c.Nodes; node++ {
		name := c.NodeName(node)
		certs = append(certs, certificate{
			name: name, authority: "ca", kubeconfig: c.node(node, "kubelet.kubeconfig"), identity: pki.Identity{
				User: "system:node:" + name, Groups: []string{"system:nodes"}, Names: []string{name}, Addrs: c.NodeAddrs(node),
			},
		})
	}
	return certs
}

// writeKubeconfig saves a kubeconfig that has all it needs in itself, so that
// it may be copied anywhere.
func (c *Cluster) writeKubeconfig(path string, ca *pki.Authority, client pki.Pair) error {
	config := api.NewConfig()
	config.Clusters["dormouse"] = &api.Cluster{
		Server: c.APIServerURL(), CertificateAuthorityData: ca.Cert,
	}
	config.AuthInfos["dormouse"] = &api.AuthInfo{ClientCertificateData: client.Cert, ClientKeyData: client.Key}
	config.Contexts["dormouse"] = &api.Context{Cluster: "dormouse", AuthInfo: "dormouse"}
	config.CurrentContext = "dormouse"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}
