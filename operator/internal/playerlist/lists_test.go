package playerlist

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestListsOfPlayersAreReadAsTheGameWritesThem(t *testing.T) {
	t.Parallel()
	const notch = "069a79f4-44e9-4726-a5be-fca90e38aaf5"
	now := time.Date(2026, 1, 31, 18, 0, 0, 0, time.UTC)
	ban := func(name, expires string) string {
		return fmt.Sprintf(`{"uuid": "", "name": %q, "created": "2025-12-24 12:00:00 +0000", "source": "Server", "expires": %q, "reason": "x"}`, name, expires)
	}
	var many []string
	for i := range v1alpha1.MaxListedPlayers + 1 {
		many = append(many, fmt.Sprintf(`{"name": "p%d"}`, i))
	}
	for name, c := range map[string]struct {
		text string
		want []string
		next time.Time
		says string
	}{
		"an empty list":      {text: "[]"},
		"a whitelist":        {text: `[{"uuid": "` + notch + `", "name": "Notch"}, {"name": "jeb_"}]`, want: []string{notch, "notch", "JEB_"}},
		"bans for ever":      {text: "[" + ban("Bob", "forever") + "]", want: []string{"bob"}},
		"bans that end":      {text: "[" + ban("A", "2026-01-31 19:00:01 +0100") + "," + ban("B", "2026-02-01 00:00:00 +0000") + "]", want: []string{"a", "b"}, next: now.Add(time.Second)},
		"a ban that is over": {text: "[" + ban("A", "2026-01-31 18:00:00 +0000") + "," + ban("B", "forever") + "]", want: []string{"b"}},
		"twice":              {text: `[{"name": "a"}, {"name": "A"}]`, want: []string{"a"}},
		"no JSON":            {text: "notch\njeb_", says: "it is no JSON of a list"},
		"no list":            {text: `{"name": "a"}`, says: "it is no JSON of a list"},
		"nobody":             {text: `[{"name": "a"}, {}]`, says: "entry 1 has neither a name nor a uuid"},
		"a bad time":         {text: "[" + ban("A", "tomorrow") + "]", says: `expires at "tomorrow"`},
		"too many":           {text: "[" + strings.Join(many, ",") + "]", says: "more than 2048"},
		"as many as may":     {text: "[" + strings.Join(many[1:], ",") + "]", want: nil},
	} {
		got, next, err := readPlayers(c.text, now)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: the error is %v, want %q", name, err, c.says)
			}
			continue
		}
		var want []string
		for _, who := range c.want {
			want = append(want, v1alpha1.PlayerDigest(who))
		}
		slices.Sort(want)
		if err != nil || !next.Equal(c.next) || name != "as many as may" && !slices.Equal(got, want) {
			t.Errorf("%s: %v until %s, %v; want %v until %s", name, got, next, err, want, c.next)
		}
	}
}

// What is kept of a list in the cache says the same as the list, now and later, and is
// bounded whatever somebody writes.
func TestWhatIsCachedOfListsIsTheirDigests(t *testing.T) {
	t.Parallel()
	now := time.Date(2126, 1, 31, 18, 0, 0, 0, time.UTC)
	const bans = `[{"name": "A", "expires": "2126-01-31 19:00:00 +0000"}, {"name": "B", "uuid": "069a79f4-44e9-4726-a5be-fca90e38aaf5"}]`
	lists := &corev1.ConfigMap{
		Data:       map[string]string{"banned-players.json": bans, "notes": strings.Repeat("x", 1<<20)},
		BinaryData: map[string][]byte{"plan": make([]byte, 1<<20)},
	}
	lists.Annotations = map[string]string{"last-applied": bans}
	for range 2 { // an object may come twice
		if _, err := Slim(lists); err != nil {
			t.Fatal(err)
		}
	}
	if size := len(lists.Data["notes"]) + len(lists.Data["banned-players.json"]); size > 200 || lists.BinaryData != nil || lists.Annotations != nil {
		t.Errorf("%d bytes are kept of it, %v, %v", size, lists.BinaryData, lists.Annotations)
	}
	for _, at := range []time.Time{now, now.Add(time.Hour)} {
		want, wantNext, _ := readPlayers(bans, at)
		got, next, err := readPlayers(lists.Data["banned-players.json"], at)
		if err != nil || !slices.Equal(got, want) || !next.Equal(wantNext) || len(got) == 0 {
			t.Errorf("at %s it lists %v until %s, %v; want %v until %s", at, got, next, err, want, wantNext)
		}
	}
	// More lists, and more on them, than anybody needs.
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf(`{"name": "%d"}`, i))
	}
	lists = &corev1.ConfigMap{Data: map[string]string{}}
	for i := range 20_000 {
		lists.Data[fmt.Sprintf("%05d", i)] = "[" + strings.Join(many, ",") + "]"
	}
	if _, err := Slim(lists); err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, text := range lists.Data {
		size += len(text)
	}
	if size > 200<<10 {
		t.Errorf("%d bytes are kept", size)
	}
	if got, _, err := readPlayers(lists.Data["00000"], now); len(got) != 1000 || err != nil {
		t.Errorf("the first has %d, %v", len(got), err)
	}
	if _, _, err := readPlayers(lists.Data["00063"], now); err == nil || !strings.Contains(err.Error(), "more than 8192") {
		t.Errorf("of one that is too many it says %v", err)
	}
	// What only looks as if it were packed isn't.
	for _, text := range []string{strings.Repeat("x", 1<<20), strings.Repeat("AAAAAAAAAAAA\n", v1alpha1.MaxListedPlayers+1), "!" + strings.Repeat("x", 1000)} {
		lists := &corev1.ConfigMap{Data: map[string]string{"a": packedList + text}}
		if _, err := Slim(lists); err != nil || len(lists.Data["a"]) > 300 {
			t.Errorf("%d bytes are kept of what begins as %.20q, %v", len(lists.Data["a"]), text, err)
		}
	}
	_, _, ob := readList(now, &v1alpha1.PlayerList{ConfigMap: "lists", Key: "10000"}, lists)
	if ob == nil || !strings.Contains(ob.Message, "among its first 64") {
		t.Errorf("of one beyond it says %+v", ob)
	}
}
