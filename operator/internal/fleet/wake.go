package fleet

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/fleet/serverbuilder"
	"dormouse.dev/dormouse/operator/internal/pending"
	"dormouse.dev/dormouse/operator/internal/places"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

// A wake creates the first Servers itself, since a player waits for them: whoever sets the
// replicas of a Fleet without Servers also creates the first of them at once, with the names
// that the Fleet's controller would give them. Whichever of the two comes second finds them
// created.

const (
	// maxFirst bounds how many Servers a wake makes. The controller makes the rest.
	maxFirst = 4
	// alignTime is how long a Fleet that had no Servers gives them the names that a wake would
	// give them, too.
	alignTime = pending.MaxLag
)

// Empty reports whether a Fleet has no Servers, as far as the cache knows.
func Empty(ctx context.Context, cached client.Reader, f *v1alpha1.Fleet) bool {
	var list v1alpha1.ServerList
	err := cached.List(ctx, &list, client.InNamespace(f.Namespace), client.MatchingFields{IndexOwner: string(f.UID)}, client.Limit(1), client.UnsafeDisableDeepCopy)
	return err == nil && len(list.Items) == 0
}

// First are the first Servers of an empty Fleet whose replicas are being set; f is the Fleet before that, but
// with its places.
func First(f *v1alpha1.Fleet, replicas int32) []*v1alpha1.Server {
	f = f.DeepCopy()
	f.Generation++
	f.Spec.Replicas = &replicas
	var wanted []int32
	if len(f.Spec.Template.Spec.Storage) > 0 {
		var err error
		if wanted, err = places.Wanted(&f.Spec); err != nil || len(wanted) < int(replicas) {
			return nil
		}
	}
	hash := templatehash.Of(f.Spec.Template)
	servers := make([]*v1alpha1.Server, min(replicas, maxFirst))
	for i := range servers {
		s := serverbuilder.Build(f, hash, serverbuilder.FirstName(f, int32(i)), places.None)
		if wanted != nil {
			s = serverbuilder.Build(f, hash, places.Name(f, wanted[i]), wanted[i])
		}
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, wellknown.OwnerGenerationAnnotation, strconv.FormatInt(f.Generation, 10))
		servers[i] = s
	}
	return servers
}

// CreateFirst creates the first Servers, and returns how many it could. The others are left to the Fleet's
// controller, which also reports why.
func CreateFirst(ctx context.Context, c client.Client, servers []*v1alpha1.Server) int {
	var made atomic.Int32
	var group sync.WaitGroup
	for _, s := range servers {
		group.Go(func() {
			if c.Create(ctx, s) == nil {
				made.Add(1)
			}
		})
	}
	group.Wait()
	return int(made.Load())
}

// firstServers is a Fleet's controller's memory of the beginning of a generation.
type firstServers struct {
	generation int64
	// at is when the generation was first seen, if it had no Servers then except those that a
	// wake created for it.
	at time.Time
	// begins is set while new Servers get the names that a wake would give them.
	begins bool
	// used are the names that its Servers have had since then. The name of a replaced one is
	// not used again.
	used map[string]bool
	// lag is that of a cache with Servers for a later generation than the Fleet's in it.
	lag pending.Lag
}

// see takes in the Fleet and its Servers. It reports whether the cache is about to show a later
// Fleet: its Servers are there already, and would be too many for this one. The wait is bounded.
func (b *firstServers) see(now time.Time, f *v1alpha1.Fleet, servers []server) (cacheLags bool) {
	if b.generation != f.Generation {
		b.generation, b.at, b.used = f.Generation, now, map[string]bool{}
		for i := range servers {
			if servers[i].ownerGeneration != f.Generation {
				b.at = time.Time{}
			}
		}
	}
	b.begins = !b.at.IsZero() && now.Sub(b.at) < alignTime
	ofLater := false
	for i := range servers {
		if b.begins {
			b.used[servers[i].name] = true
		}
		ofLater = ofLater || servers[i].ownerGeneration > f.Generation
	}
	return b.lag.Lasts(now, ofLater)
}

// namer gives places' names where Servers have some; else the first names while the Fleet begins,
// and random ones after that.
func (b *firstServers) namer(f *v1alpha1.Fleet, free []int32) *namer {
	n := &namer{fleet: f, used: b.used, free: free}
	if b.begins {
		n.first = ptr.Deref(f.Spec.Replicas, 1)
	}
	return n
}
