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

// Unsettled are the pods that a target had when it went to zero. A client who comes in
// that moment has it scaled up again, and then a pod looks as if it stayed that is
// about to be ended, for as long as its controllers take to see the zero: new clients
// must not be sent to it. Whether it stays, its controllers tell, see target.Settled.
// The status keeps them, so that resolvers and another leader know them, too.
type Unsettled struct {
	UIDs map[types.UID]bool
	// Next is when to ask again; zero where nothing is to be asked.
	Next time.Time
	// Waits says what is missing for pods that are left out to be taken back; nil
	// where there are none, or haven't been for long.
	Waits error
}

// UnsettledAtZero are those of a target that is at zero. Pods that end already are among
// them: others may see that later.
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

// Add takes in pods, as far as the status can name them.
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

// Still are those of them that are there and don't end.
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

// List is what the status says of them.
func (u *Unsettled) List() []types.UID { return slices.Sorted(maps.Keys(u.UIDs)) }
