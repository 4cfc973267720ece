package fleet

import (
	"context"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/pending"
)

// A wake carries its decision down, since a player waits for it: whoever sets the
// replicas of a Fleet that has no Servers makes the first of them in the same
// moment, with the names that the Fleet's controller would give them. Whichever of
// the two comes second finds them made.

const (
	// maxCarried bounds how many Servers a wake makes. The controller makes the rest.
	maxCarried = 4
	// alignTime is for how long a Fleet that had no Servers gives them names that a
	// wake gives them, too.
	alignTime = pending.MaxLag
)

// Empty reports whether a Fleet has no Servers, as far as the cache knows.
func Empty(ctx context.Context, cached client.Reader, f *v1alpha1.Fleet) bool {
	var list v1alpha1.ServerList
	err := cached.List(ctx, &list, client.InNamespace(f.Namespace), client.MatchingFields{IndexOwner: string(f.UID)}, client.UnsafeDisableDeepCopy)
	return err == nil && len(list.Items) == 0
}

// Carry makes the first Servers of an empty Fleet that is being set to so many
// replicas; f is the Fleet before that. What can't be made is left to the Fleet's
// controller, which will also say why.
func Carry(ctx context.Context, c client.Client, f *v1alpha1.Fleet, replicas int32) {
	f = f.DeepCopy()
	f.Generation++
	var group sync.WaitGroup
	for i := range min(replicas, maxCarried) {
		group.Go(func() {
			s := desiredServer(f, firstName(f, i))
			s.Annotations = with(s.Annotations, v1alpha1.OwnerGenerationAnnotation, strconv.FormatInt(f.Generation, 10))
			_ = c.Create(ctx, s)
		})
	}
	group.Wait()
}

// firstName is the name of one of the Servers with which a generation of a Fleet
// begins that has none.
func firstName(f *v1alpha1.Fleet, i int32) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789" // no vowels, no words
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(string(f.UID) + "/" + strconv.FormatInt(f.Generation, 10) + "/" + strconv.Itoa(int(i)))) // A hash takes everything.
	sum := hash.Sum64()
	suffix := make([]byte, suffixLength)
	for at := range suffix {
		suffix[at] = letters[sum%uint64(len(letters))]
		sum /= uint64(len(letters))
	}
	return f.Name + "-" + string(suffix)
}

// firstServers is what a Fleet's controller remembers of a generation's first moments.
type firstServers struct {
	generation int64
	// at is when it was first seen, where it had no Servers then but those that
	// were made for it.
	at time.Time
	// used are the names that its Servers have had since: one that was replaced
	// leaves its name to nobody.
	used map[string]bool
	// lag is that of a cache with Servers for a later generation than it shows.
	lag pending.Lag
}

// see takes in what a pass sees.
func (b *firstServers) see(now time.Time, f *v1alpha1.Fleet, servers []server) {
	if b.generation != f.Generation {
		b.generation, b.at, b.used = f.Generation, now, map[string]bool{}
		for i := range servers {
			if servers[i].ownerGeneration != f.Generation {
				b.at = time.Time{}
			}
		}
	}
	if b.begins(now) {
		for i := range servers {
			b.used[servers[i].name] = true
		}
	}
	b.lag.See(now, laterThan(f, servers))
}

func (b *firstServers) begins(now time.Time) bool { return !b.at.IsZero() && now.Sub(b.at) < alignTime }

// cacheLags reports whether the cache is about to show a later Fleet: its Servers are there
// already, and would be too many for this one. What never comes isn't waited for.
func (b *firstServers) cacheLags(now time.Time) bool { return b.lag.Lasts(now) }

func laterThan(f *v1alpha1.Fleet, servers []server) bool {
	for i := range servers {
		if servers[i].ownerGeneration > f.Generation {
			return true
		}
	}
	return false
}

// namer gives new Servers their names.
type namer struct {
	fleet *v1alpha1.Fleet
	used  map[string]bool

	mu   sync.Mutex
	next int32
}

// namer gives the first names as long as the Fleet begins, and then any.
func (b *firstServers) namer(now time.Time, f *v1alpha1.Fleet) *namer {
	n := &namer{fleet: f, used: b.used}
	if !b.begins(now) {
		n.next = replicas(&f.Spec)
	}
	return n
}

// one gives a name, and says whether it is one that a wake may have given, too.
func (n *namer) one() (name string, first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.next < replicas(&n.fleet.Spec) {
		name := firstName(n.fleet, n.next)
		if n.next++; !n.used[name] {
			return name, true
		}
	}
	return newName(n.fleet), false
}
