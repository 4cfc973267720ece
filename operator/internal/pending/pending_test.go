package pending

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// thing is an object, and what is written of it.
type thing struct {
	uid     types.UID
	version int
}

func overlay(expire bool) Overlay[thing, thing] {
	return Overlay[thing, thing]{
		UID: func(t *thing) types.UID { return t.uid },
		Merge: func(t *thing, w Write[thing]) bool {
			if t.version >= w.Object.version {
				return false
			}
			t.version = w.Object.version
			return true
		},
		Unseen: func(t thing) thing { return t },
		Expire: expire,
	}
}

func TestAWriteIsSeenBeforeTheCacheShowsIt(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		write  Write[thing]
		cached []thing
		expire bool
		want   []thing
		after  time.Duration
		left   int
	}{
		"a new object": {
			write: Write[thing]{Object: thing{"a", 1}, At: now.Add(-time.Second)},
			want:  []thing{{"a", 1}}, after: ForgottenAfter - time.Second, left: 1,
		},
		"a new object that never came": {write: Write[thing]{Object: thing{"a", 1}, At: now.Add(-ForgottenAfter)}},
		"a change": {
			write: Write[thing]{Object: thing{"a", 2}, At: now, Kind: Change}, cached: []thing{{"a", 1}},
			want: []thing{{"a", 2}}, left: 1,
		},
		"a change that the cache shows": {
			write: Write[thing]{Object: thing{"a", 2}, At: now, Kind: Change}, cached: []thing{{"a", 3}},
			want: []thing{{"a", 3}},
		},
		"a change of what is gone": {write: Write[thing]{Object: thing{"a", 2}, At: now, Kind: Change}},
		"a change that expires": {
			write: Write[thing]{Object: thing{"a", 2}, At: now, Kind: Change}, cached: []thing{{"a", 1}}, expire: true,
			want: []thing{{"a", 2}}, after: ForgottenAfter, left: 1,
		},
		"a change that has expired": {
			write: Write[thing]{Object: thing{"a", 2}, At: now.Add(-ForgottenAfter), Kind: Change}, cached: []thing{{"a", 1}}, expire: true,
			want: []thing{{"a", 1}},
		},
	} {
		writes := Writes[thing]{c.write.Object.uid: c.write}
		got, after := overlay(c.expire).Over(writes, now, slices.Clone(c.cached))
		if !slices.Equal(got, c.want) || after != c.after || len(writes) != c.left {
			t.Errorf("%s: %v, looked at again after %s, %d pending; want %v, %s, %d", name, got, after, len(writes), c.want, c.after, c.left)
		}
	}
}
