package playerlist

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/text"
)

// Lists of players are user-provided texts of up to a megabyte each. They are read once, as
// they come into the cache, which keeps their digests.

const (
	// packedList begins a packed text: one digest a line, each with the Unix time in seconds at
	// which its ban ends, if it does; or an exclamation mark and an error.
	packedList = "\x00players\n"
	badList    = packedList + "!"
	// maxLists and maxOnLists bound what the cache keeps of a ConfigMap.
	maxLists   = 64
	maxOnLists = 4 * v1alpha1.MaxListedPlayers
)

// packedLine is a line of such a list.
var packedLine = regexp.MustCompile(`^[A-Za-z0-9_-]{12}( [0-9]{1,12})?$`)

// Slim reduces a ConfigMap that is about to be cached to the digests of the players that it
// lists.
func Slim(o any) (any, error) {
	lists, ok := o.(*corev1.ConfigMap)
	if !ok {
		return o, nil
	}
	lists.ManagedFields, lists.Annotations, lists.BinaryData = nil, nil, nil
	packed, left := map[string]string{}, maxOnLists
	for i, key := range slices.Sorted(maps.Keys(lists.Data)) {
		if i == maxLists {
			break
		}
		text := packPlayers(lists.Data[key], time.Now())
		if left -= strings.Count(text, "\n"); left < 0 {
			text = badList + fmt.Sprintf("the lists of the ConfigMap have more than %d names and uuids together", maxOnLists)
		}
		packed[key] = text
	}
	lists.Data = packed
	return lists, nil
}

// listedPlayer is an entry of Minecraft's whitelist.json or banned-players.json.
type listedPlayer struct {
	UUID    string `json:"uuid"`
	Name    string `json:"name"`
	Expires string `json:"expires"`
}

// The formats in which the game writes the end of a ban.
const (
	expiryFormat = "2006-01-02 15:04:05 -0700"
	neverEnds    = "forever"
)

// isPacked reports whether a text is the result of packPlayers.
func isPacked(text string) bool {
	lines, is := strings.CutPrefix(text, packedList)
	if !is {
		return false
	}
	if wrong, bad := strings.CutPrefix(lines, "!"); bad {
		return len(wrong) < 300
	}
	count := 0
	for line := range strings.Lines(lines) {
		if count++; count > v1alpha1.MaxListedPlayers || !packedLine.MatchString(strings.TrimSuffix(line, "\n")) {
			return false
		}
	}
	return true
}

// packPlayers packs a list, unless it is packed already. Bans that have ended are left out.
func packPlayers(list string, now time.Time) string {
	if isPacked(list) {
		return list
	}
	var listed []listedPlayer
	if err := json.Unmarshal([]byte(list), &listed); err != nil {
		return badList + "it is no JSON of a list of objects"
	}
	var out strings.Builder
	out.WriteString(packedList)
	count := 0
	for i, p := range listed {
		if p.UUID == "" && p.Name == "" {
			return badList + fmt.Sprintf("entry %d has neither a name nor a uuid", i)
		}
		ends := ""
		if p.Expires != "" && p.Expires != neverEnds {
			at, err := time.Parse(expiryFormat, p.Expires)
			if err != nil {
				return badList + fmt.Sprintf("entry %d expires at %s, which is no time such as 2026-01-31 18:00:00 +0000", i, text.Quoted(p.Expires))
			}
			if !at.After(now) {
				continue
			}
			ends = " " + strconv.FormatInt(at.Unix(), 10)
		}
		for _, who := range []string{p.UUID, p.Name} {
			if who != "" {
				out.WriteString(v1alpha1.PlayerDigest(who) + ends + "\n")
				count++
			}
		}
		if count > v1alpha1.MaxListedPlayers {
			return badList + fmt.Sprintf("it has more than %d names and uuids", v1alpha1.MaxListedPlayers)
		}
	}
	return out.String()
}

// readPlayers reads a list into digests, without bans that have ended, and returns when the
// next one ends.
func readPlayers(text string, now time.Time) (digests []string, next time.Time, err error) {
	packed := strings.TrimPrefix(packPlayers(text, now), packedList)
	if wrong, bad := strings.CutPrefix(packed, "!"); bad {
		return nil, next, errors.New(wrong)
	}
	for line := range strings.Lines(packed) {
		digest, ends, ban := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if ban {
			seconds, err := strconv.ParseInt(ends, 10, 64)
			at := time.Unix(seconds, 0)
			if err != nil || !at.After(now) {
				continue
			}
			if next.IsZero() || at.Before(next) {
				next = at
			}
		}
		digests = append(digests, digest)
	}
	slices.Sort(digests)
	return slices.Compact(digests), next, nil
}
