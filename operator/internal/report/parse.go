package report

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/json"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reportapi"
)

// parse parses a report's body, which must be exactly one report, within reportapi's bounds and
// acceptable to the API server: what is found out here costs no write. Unknown fields of a
// newer sidecar are ignored, because games run for longer than operators.
func parse(body []byte) (*reportapi.Report, error) {
	r := &reportapi.Report{}
	strict, err := json.UnmarshalStrict(body, r, json.DisallowDuplicateFields)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf(`the body must be one JSON object like {"server":"lobby-1","instance":"b7c1","sequence":1,"game":{"state":"Ready"},"deletionAllowed":true}: %w`, err)
	}
	if problems := validation.IsDNS1123Subdomain(r.Server); len(problems) > 0 {
		return nil, fmt.Errorf("server must be the name of a Server: %s", problems[0])
	}
	switch {
	case r.Instance == "" || len(r.Instance) > reportapi.MaxInstanceBytes:
		return nil, fmt.Errorf("instance must have from 1 to %d bytes", reportapi.MaxInstanceBytes)
	case r.Sequence > math.MaxInt64:
		return nil, fmt.Errorf("sequence is %d: it must be at most %d", r.Sequence, int64(math.MaxInt64))
	case len(r.Seen) > reportapi.MaxInstanceBytes || len(r.Looked) > reportapi.MaxInstanceBytes:
		return nil, fmt.Errorf("seen and looked must have at most %d bytes each", reportapi.MaxInstanceBytes)
	case r.Restore:
		// Its other fields are ignored, so none of them can be invalid.
		r.Game = reportapi.Game{}
		return r, nil
	}
	return r, checkGame(&r.Game)
}

func checkGame(g *reportapi.Game) error {
	switch g.State {
	case v1alpha1.GameStarting, v1alpha1.GameReady, v1alpha1.GameAllocated, v1alpha1.GameReserved, v1alpha1.GameShutdown, v1alpha1.GameUnhealthy:
	default:
		return fmt.Errorf("game.state is %.40q: it must be Starting, Ready, Allocated, Reserved, Shutdown or Unhealthy", g.State)
	}
	switch g.Permission {
	case "", v1alpha1.DeletionAllowed, v1alpha1.DeletionDenied:
	default:
		return fmt.Errorf("game.permission is %.40q: it must be Allowed or Denied, or absent", g.Permission)
	}
	if len(g.Message) > reportapi.MaxMessageBytes {
		return fmt.Errorf("game.message has %d bytes: at most %d are taken", len(g.Message), reportapi.MaxMessageBytes)
	}
	return errors.Join(checkPlayers(g.Players), checkCounters(g.Counters), checkLists(g.Lists), checkMetadata(g))
}

// checkPlayers allows more players than the capacity: games keep places for their operators.
func checkPlayers(p *v1alpha1.PlayersStatus) error {
	if p == nil {
		return nil
	}
	if p.Current < 0 || p.Capacity < 0 {
		return fmt.Errorf("game.players has %d of %d: neither may be negative", p.Current, p.Capacity)
	}
	if len(p.IDs) > reportapi.MaxPlayerIDs {
		return fmt.Errorf("game.players has %d ids: at most %d are taken", len(p.IDs), reportapi.MaxPlayerIDs)
	}
	for _, id := range p.IDs {
		if n := utf8.RuneCountInString(id); n > reportapi.MaxValueLength {
			return fmt.Errorf("an id in game.players has %d characters: at most %d are taken", n, reportapi.MaxValueLength)
		}
	}
	return nil
}

func checkCounters(counters map[string]v1alpha1.Counter) error {
	if len(counters) > reportapi.MaxCounters {
		return fmt.Errorf("game.counters has %d counters: at most %d are taken", len(counters), reportapi.MaxCounters)
	}
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		c := counters[name]
		switch {
		case name == "" || len(name) > reportapi.MaxNameBytes:
			return fmt.Errorf("a counter's name must have from 1 to %d bytes", reportapi.MaxNameBytes)
		case c.Count < 0 || c.Capacity < 0:
			return fmt.Errorf("counter %q has %d of %d: neither may be negative", name, c.Count, c.Capacity)
		case c.Count > c.Capacity:
			return fmt.Errorf("counter %q has %d of %d: it can't have more than its capacity", name, c.Count, c.Capacity)
		}
	}
	return nil
}

func checkLists(lists map[string]v1alpha1.List) error {
	if len(lists) > reportapi.MaxLists {
		return fmt.Errorf("game.lists has %d lists: at most %d are taken", len(lists), reportapi.MaxLists)
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		l := lists[name]
		switch {
		case name == "" || len(name) > reportapi.MaxNameBytes:
			return fmt.Errorf("a list's name must have from 1 to %d bytes", reportapi.MaxNameBytes)
		case l.Capacity < 0 || l.Capacity > reportapi.MaxListValues:
			return fmt.Errorf("list %q has a capacity of %d: it must be from 0 to %d", name, l.Capacity, reportapi.MaxListValues)
		case int64(len(l.Values)) > l.Capacity:
			return fmt.Errorf("list %q has %d of %d values: it can't have more than its capacity", name, len(l.Values), l.Capacity)
		}
		seen := make(map[string]bool, len(l.Values))
		for _, v := range l.Values {
			if n := utf8.RuneCountInString(v); n > reportapi.MaxValueLength {
				return fmt.Errorf("a value of list %q has %d characters: at most %d are taken", name, n, reportapi.MaxValueLength)
			}
			if seen[v] {
				return fmt.Errorf("list %q has the value %q twice", name, v)
			}
			seen[v] = true
		}
	}
	return nil
}

func checkMetadata(g *reportapi.Game) error {
	if len(g.Labels) > reportapi.MaxMetadata || len(g.Annotations) > reportapi.MaxMetadata {
		return fmt.Errorf("game has %d labels and %d annotations: at most %d of each are taken", len(g.Labels), len(g.Annotations), reportapi.MaxMetadata)
	}
	total := 0
	for _, key := range slices.Sorted(maps.Keys(g.Labels)) {
		total += len(key) + len(g.Labels[key])
		if err := checkKey("label", key); err != nil {
			return err
		}
		if problems := validation.IsValidLabelValue(g.Labels[key]); len(problems) > 0 {
			return fmt.Errorf("label %s has a value that labels can't have: %s", key, problems[0])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(g.Annotations)) {
		total += len(key) + len(g.Annotations[key])
		if err := checkKey("annotation", key); err != nil {
			return err
		}
		if n := len(g.Annotations[key]); n > reportapi.MaxAnnotationBytes {
			return fmt.Errorf("annotation %s has %d bytes: at most %d are taken", key, n, reportapi.MaxAnnotationBytes)
		}
	}
	if total > reportapi.MaxMetadataBytes {
		return fmt.Errorf("labels and annotations have %d bytes together: at most %d are taken", total, reportapi.MaxMetadataBytes)
	}
	return nil
}

func checkKey(kind, key string) error {
	if !strings.HasPrefix(key, wellknown.SDKMetadataPrefix) {
		return fmt.Errorf("%s %.80q is not a game's to set: its key must begin with %s", kind, key, wellknown.SDKMetadataPrefix)
	}
	name := key
	if kind == "annotation" {
		name = strings.ToLower(key) // as the API server does
	}
	if problems := validation.IsQualifiedName(name); len(problems) > 0 {
		return fmt.Errorf("%s %.80q has a key that can't be one: %s", kind, key, problems[0])
	}
	return nil
}

// deniedSince is what a sidecar says in reportapi.DeniedSinceHeader; 0 where it says nothing, as
// those of earlier versions, or what can't be.
func deniedSince(header string, r *reportapi.Report) int64 {
	n, err := strconv.ParseInt(header, 10, 64)
	if err != nil || n < 1 || n > sequence(r) {
		return 0
	}
	return n
}
