package devcluster

import (
	"fmt"
	"path/filepath"
)

// StateDir is where everything of the machine's one cluster is kept.
const StateDir = "/var/lib/dormouse-devcluster"

// layout names the files of the state directory.
type layout struct{ dir string }

func (l layout) join(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

func (l layout) ledgerPath() string { return l.join("ledger") }
func (l layout) lockPath() string   { return l.join("lock") }
func (l layout) statePath() string  { return l.join("state.json") }

// Kubeconfig is the path of a kubeconfig with every right.
func (l layout) Kubeconfig() string { return l.join("kubeconfig") }

func (l layout) logs() string { return l.join("logs") }

func (l layout) logPath(component string) string { return l.join("logs", component+".log") }

func (l layout) pki(file string) string { return l.join("pki", file) }

func (l layout) config(file string) string { return l.join("config", file) }

// node is a path in a node's own directory.
func (l layout) node(node int, parts ...string) string {
	return filepath.Join(append([]string{l.join(fmt.Sprintf("node-%d", node))}, parts...)...)
}

// containerdSocket is the host's path to a socket that the node itself knows
// as /run/containerd/containerd.sock.
func (l layout) containerdSocket(node int) string {
	return l.node(node, "run", "containerd", "containerd.sock")
}

// auditLog is in a directory of its own because the API server renames it there
// when it is full.
func (l layout) auditLog() string { return l.join("logs", "audit", "audit.log") }

// directories have to be there before anything starts.
func (c *Cluster) directories() []string {
	dirs := []string{c.logs(), filepath.Dir(c.auditLog()), c.join("pki"), c.join("config"), c.join("etcd"), c.volumes()}
	for node := 1; node <= c.Nodes; node++ {
		dirs = append(
			dirs,
			c.node(node, "run", "netns"),
			c.node(node, "lib", filepath.Base(StateDir)),
			c.node(node, "cni"),
			c.node(node, "sysctl"),
			c.join("logs", c.NodeName(node)),
		)
	}
	return dirs
}
