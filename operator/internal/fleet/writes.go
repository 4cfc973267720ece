package fleet

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// forgetWrite is when a Server that was created and never showed in the cache is
// taken for gone: somebody deleted it by force in the same moment.
const forgetWrite = time.Minute

// writes are the Fleet's own writes that the cache doesn't show yet, by the
// Servers' UIDs. Without them a pass that comes before the cache has them would
// create and drain once more.
type writes map[types.UID]write

type write struct {
	// server is as the API server returned it.
	server server
	at     time.Time
	kind   writeKind
}

type writeKind int

const (
	wroteCreate writeKind = iota
	wroteDrain
	wroteDelete
)

// over lays the writes over what the cache shows and forgets those that it shows.
// It returns when one must be looked at again; 0 for never.
func (w writes) over(now time.Time, servers []server) ([]server, time.Duration) {
	shown := make(map[types.UID]bool, len(w))
	for i := range servers {
		s := &servers[i]
		own, ok := w[s.uid]
		if !ok {
			continue
		}
		shown[s.uid] = true
		switch {
		case own.kind == wroteDelete && !s.deleting:
			s.deleting = true
		case own.kind == wroteDrain && s.generation < own.server.generation:
			s.draining, s.ours = own.server.draining, own.server.ours
		default:
			delete(w, s.uid)
		}
	}
	var again time.Duration
	for uid, own := range w {
		left := forgetWrite - now.Sub(own.at)
		switch {
		case shown[uid]:
		case own.kind == wroteCreate && left > 0:
			servers = append(servers, own.server)
			if again == 0 || left < again {
				again = left
			}
		default:
			delete(w, uid)
		}
	}
	return servers, again
}
