// Package devcluster runs a real Kubernetes on one Linux machine without
// Docker: the control plane as processes, and two or more nodes with a kubelet,
// containerd and kube-proxy each. The Makefile's targets, the demo and the
// end-to-end tests use it.
//
// It owns the state directory /var/lib/dormouse-devcluster, the network
// namespaces and the interface whose names begin with "dormouse", the cgroup
// dormouse-devcluster, and the routes for the ranges in package plan. Nothing else on
// the machine is its business: it leaves the host's firewall and sysctls as
// they are, and whatever it makes is written to a ledger first, so that [Down]
// removes it all, after a crash too.
//
// The layout:
//
//	host                      namespace dormouse-switch
//	etcd, kube-apiserver, …   ┌────────────┐
//	dormouse0 10.250.0.1 ─────┤            ├──── dormouse-node-1  10.250.0.11
//	                          │   bridge   ├──── dormouse-node-2  10.250.0.12
//	                          │            ├──── dormouse-player  10.250.0.100
//	                          └────────────┘
//
// The bridge has a namespace of its own so that a host's firewall, which may
// well filter bridged packets, never sees what nodes send one another. No
// namespace has a default route: nothing that runs in the cluster reaches
// anything but the cluster. Each node also has a mount namespace, so that its
// kubelet and containerd can have their usual directories, and so that their
// mounts go when they do.
package devcluster
