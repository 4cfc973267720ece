package devcluster

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"dormouse.dev/dormouse/internal/dev/devcluster/binaries"
	"dormouse.dev/dormouse/internal/dev/devcluster/host"
	"dormouse.dev/dormouse/internal/dev/devcluster/plan"
)

// object is the content of a configuration file before it is encoded.
type object map[string]any

func (o object) encode() ([]byte, error) {
	content, err := yaml.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	return content, nil
}

// encodeJSON is for CNI, which reads nothing else.
func (o object) encodeJSON() ([]byte, error) {
	content, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	return content, nil
}

// resolvConf is what pods with the node's own DNS settings get. There is no
// name server outside of the cluster.
const resolvConf = "# The cluster reaches no name server but its own.\n"

// kubeletConfig is tuned for pods that start fast, and for a machine that the
// kubelet shares with others: it neither evicts pods nor removes images for
// disk space that isn't its own.
func (c *Cluster) kubeletConfig(node int) object {
	return object{
		"apiVersion":               "kubelet.config.k8s.io/v1beta1",
		"kind":                     "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		"tlsCertFile":              c.pki(c.NodeName(node) + ".crt"),
		"tlsPrivateKeyFile":        c.pki(c.NodeName(node) + ".key"),
		"authentication": object{
			"anonymous": object{"enabled": false},
			"webhook":   object{"enabled": true},
			"x509":      object{"clientCAFile": c.pki("ca.crt")},
		},
		"authorization": object{"mode": "Webhook"},
		"clusterDomain": plan.ClusterDomain,
		"clusterDNS":    []string{c.DNSAddrs()[0].String()},
		"resolvConf":    c.node(node, "resolv.conf"),

		// A root of its own keeps two kubelets out of one another's pods, and
		// lets the cluster's removal find every container.
		"cgroupDriver":           "cgroupfs",
		"cgroupRoot":             host.PodCgroup(c.NodeName(node)),
		"enforceNodeAllocatable": []string{},
		"failCgroupV1":           false,
		"failSwapOn":             false,
		// Without CAP_SYS_RESOURCE a process can't lower its own score.
		"oomScoreAdj":            0,
		"makeIPTablesUtilChains": false,

		"maxPods":                       250,
		"localStorageCapacityIsolation": false,
		"imageGCHighThresholdPercent":   100,
		"evictionHard": object{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},

		"kubeAPIQPS":            1000,
		"kubeAPIBurst":          2000,
		"eventRecordQPS":        0,
		"serializeImagePulls":   false,
		"maxParallelImagePulls": 4,
		"volumePluginDir":       "/var/lib/kubelet/volumeplugins",
	}
}

// kubeProxyConfig leaves conntrack's settings alone: zero means "as it is".
func (c *Cluster) kubeProxyConfig(node int) object {
	return object{
		"apiVersion":         "kubeproxy.config.k8s.io/v1alpha1",
		"kind":               "KubeProxyConfiguration",
		"mode":               "nftables",
		"hostnameOverride":   c.NodeName(node),
		"clusterCIDR":        plan.List(c.ClusterRanges()),
		"detectLocalMode":    "ClusterCIDR",
		"oomScoreAdj":        0,
		"healthzBindAddress": "127.0.0.1:10256",
		"metricsBindAddress": "127.0.0.1:10249",
		"clientConnection":   object{"kubeconfig": c.config("kube-proxy.kubeconfig"), "qps": 1000, "burst": 2000},
		"conntrack": object{
			"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
		},
	}
}

func (c *Cluster) schedulerConfig() object {
	return object{
		"apiVersion":       "kubescheduler.config.k8s.io/v1",
		"kind":             "KubeSchedulerConfiguration",
		"leaderElection":   object{"leaderElect": false},
		"clientConnection": object{"kubeconfig": c.config("kube-scheduler.kubeconfig"), "qps": 1000, "burst": 2000},
	}
}

// containerdConfig: the sandbox's image is imported, never pulled.
func (c *Cluster) containerdConfig(node int) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = %q
  conf_dir = %q
`, pauseRef, binaries.CNIPlugins, c.node(node, "cni"))
}

// cniConfig puts a node's pods on a bridge of the node, with the host ports
// that they ask for.
func (c *Cluster) cniConfig(node int) object {
	var ranges [][]object
	for _, r := range c.PodRanges(node) {
		ranges = append(ranges, []object{{"subnet": r.String()}})
	}
	return object{
		"cniVersion": "1.0.0",
		"name":       "dormouse",
		"plugins": []object{
			{
				"type":             "bridge",
				"bridge":           "cni0",
				"isDefaultGateway": true,
				"hairpinMode":      true,
				"ipMasq":           false,
				"ipam":             object{"type": "host-local", "ranges": ranges},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}
}

// sysctls are the kernel settings that a kubelet wants and would change on the
// host. In the node's mount namespace these files lie over the real ones, so
// it finds them as it likes and the host's stay.
var sysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

func sysctlFile(name string) string { return strings.ReplaceAll(name, "/", ".") }

// mountScript is what a node's holder runs in its fresh mount namespace. It
// says so in a file when it is done, and then only waits.
func (c *Cluster) mountScript(node int) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("set -e")
	// The node gets its own /var/lib, with the state directory at its place.
	line("mount --bind %s %s", c.dir, c.node(node, "lib", filepath.Base(StateDir)))
	line("mount --rbind %s %s", c.node(node, "lib"), filepath.Dir(StateDir))
	line("mount --bind %s /run", c.node(node, "run"))
	line("mount --bind %s /var/log", c.join("logs", c.NodeName(node)))
	for name := range sysctls {
		line("if [ -e /proc/sys/%s ]; then mount --bind %s /proc/sys/%s; fi", name, c.node(node, "sysctl", sysctlFile(name)), name)
	}
	// Kubelet's volumes have to show up in containers that run already.
	line("mount --make-rshared /")
	line("touch %s", c.node(node, "ready"))
	line("exec %s", c.binary("pause"))
	return b.String()
}
