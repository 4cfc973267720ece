package namespaces

import (
	"maps"
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]List{
		"": nil, "games": {"games"}, "games, arena,,games": {"arena", "games"},
	} {
		got, err := Parse(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
		if cached := slices.Sorted(maps.Keys(got.Cached())); !slices.Equal(cached, want) {
			t.Errorf("of %q the cache has %v, want %v", text, cached, want)
		}
	}
	for _, text := range []string{"Games", "games/lobby", "games arena", ",", " "} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
	}
}

func TestHas(t *testing.T) {
	if all := List(nil); !all.Has("games") {
		t.Error("no limit leaves games out")
	}
	some := List{"arena", "games"}
	if !some.Has("games") || some.Has("default") {
		t.Errorf("%v has games: %t, default: %t; want true and false", some, some.Has("games"), some.Has("default"))
	}
}
