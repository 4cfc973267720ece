package schedule

import (
	"strings"
	"time"
)

// Kind is a way to break something.
type Kind string

// What is broken. A killed process comes back by itself, where kubelet starts
// it again, or after the fault's length, where nobody does.
const (
	LeaderKilled    Kind = "operator-leader-killed"
	LeaderPaused    Kind = "operator-leader-paused"
	FollowerKilled  Kind = "operator-follower-killed"
	ResolverKilled  Kind = "resolver-killed"
	ResolverDeleted Kind = "resolver-deleted"
	ResolverPaused  Kind = "resolver-paused"
	KubeletKilled   Kind = "kubelet-killed"
	KubeletPaused   Kind = "kubelet-paused"
	NodeCut         Kind = "node-cut"
	APIKilled       Kind = "apiserver-killed"
	APIPaused       Kind = "apiserver-paused"
	EtcdKilled      Kind = "etcd-killed"
)

// timing is how long a fault of a kind lasts, and how long the cluster usually
// takes to be whole again after it.
type timing struct {
	shortest, longest, recovery time.Duration
}

// leaseKept is the longest pause that a leader survives: it gives up when it
// could not renew its lease for ten seconds.
const leaseKept = 8 * time.Second

// kinds are in a fixed order, for a seed to mean the same each time. Pauses of
// a kubelet stay below the 40 seconds after which its node counts as lost.
var kinds = []Kind{
	LeaderKilled, LeaderPaused, FollowerKilled,
	ResolverKilled, ResolverDeleted, ResolverPaused,
	KubeletKilled, KubeletPaused, NodeCut,
	APIKilled, APIPaused, EtcdKilled,
}

var timings = map[Kind]timing{
	LeaderKilled:    {recovery: 18 * time.Second},
	LeaderPaused:    {5 * time.Second, 20 * time.Second, 4 * time.Second},
	FollowerKilled:  {recovery: 5 * time.Second},
	ResolverKilled:  {recovery: 5 * time.Second},
	ResolverDeleted: {recovery: 8 * time.Second},
	ResolverPaused:  {3 * time.Second, 15 * time.Second, 3 * time.Second},
	KubeletKilled:   {2 * time.Second, 8 * time.Second, 4 * time.Second},
	KubeletPaused:   {5 * time.Second, 25 * time.Second, 3 * time.Second},
	NodeCut:         {5 * time.Second, 20 * time.Second, 4 * time.Second},
	APIKilled:       {1 * time.Second, 6 * time.Second, 8 * time.Second},
	APIPaused:       {5 * time.Second, 20 * time.Second, 4 * time.Second},
	EtcdKilled:      {1 * time.Second, 4 * time.Second, 6 * time.Second},
}

// Kinds are all kinds of faults.
func Kinds() []Kind { return append([]Kind(nil), kinds...) }

// Join is kinds as the flag that asks for them has them.
func Join(of []Kind) string {
	names := make([]string, len(of))
	for i, k := range of {
		names[i] = string(k)
	}
	return strings.Join(names, ",")
}
