package planner

import (
	"cmp"
	"maps"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/operator/internal/target"
)

// MaxUnsettled is how many pods the status names, see v1alpha1.ElasticServiceStatus.
const MaxUnsettled = 1024

// Unsettled are the pods that a target had when it went to zero. A client that comes just then
// has the target scaled up again. A pod that is about to be ended then seems to stay, until its
// controllers have seen the zero, and new clients must not be sent to it. Whether it stays can
// be asked of its controllers, see target.Settled. The pods are kept in the status for
// resolvers and other leaders.
type Unsettled struct {
	UIDs map[types.UID]bool
	// Next is when to ask again; zero where there is nothing to ask.
	Next time.Time
	// Waits is what is missing before pods that are left out get clients again; nil where there
	// are none, or there haven't been any for long.
	Waits error
}

// UnsettledAtZero are the pods of a target that is at zero. Pods that are being deleted already
// are among them: others may see that later.
func UnsettledAtZero(all []discoveryv1.EndpointSlice) Unsettled {
	var u Unsettled
	for _, slice := range all {
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; e.TargetRef != nil {
				u.Add(e.TargetRef.UID)
			}
		}
	}
	return u
}

// Add adds pods, as many as the status can name.
func (u *Unsettled) Add(uids ...types.UID) {
	if u.UIDs == nil {
		u.UIDs = map[types.UID]bool{}
	}
	for _, uid := range uids {
		if len(u.UIDs) < MaxUnsettled {
			u.UIDs[uid] = true
		}
	}
}

// Still are those of the pods that exist and aren't being deleted.
func (u *Unsettled) Still(all []discoveryv1.EndpointSlice) []target.PodKey {
	found := map[target.PodKey]bool{}
	for _, slice := range all {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.TargetRef != nil && u.UIDs[e.TargetRef.UID] && (e.Conditions.Terminating == nil || !*e.Conditions.Terminating) {
				found[target.PodKey{Name: e.TargetRef.Name, UID: e.TargetRef.UID}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b target.PodKey) int { return cmp.Compare(a.Name, b.Name) })
}

// List is the pods as the status has them.
func (u *Unsettled) List() []types.UID { return slices.Sorted(maps.Keys(u.UIDs)) }
