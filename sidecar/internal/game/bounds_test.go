package game

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

func TestPlayersStayWithinTheirBounds(t *testing.T) {
	long := strings.Repeat("x", reportapi.MaxValueBytes+1)
	cases := map[string]struct {
		do   func(w *world) error
		want Kind
	}{
		"fewer than none":                                    {func(w *world) error { return w.SetPlayers(-1, nil) }, OutOfRange},
		"more than the Server's spec":                        {func(w *world) error { return w.SetPlayers(21, nil) }, OutOfRange},
		"as many as the Server's spec":                       {func(w *world) error { return w.SetPlayers(20, nil) }, 0},
		"more than given with it":                            {func(w *world) error { return w.SetPlayers(4, new(int64(3))) }, OutOfRange},
		"more than the spec, with a capacity that allows it": {func(w *world) error { return w.SetPlayers(400, new(int64(400))) }, 0},
		"a capacity below none":                              {func(w *world) error { return w.SetPlayers(0, new(int64(-1))) }, OutOfRange},
		"a capacity beyond all":                              {func(w *world) error { return w.SetPlayers(0, new(int64(MaxPlayers+1))) }, OutOfRange},
		"one player where there may be none":                 {func(w *world) error { return w.SetPlayers(1, new(int64(0))) }, OutOfRange},
		"beyond what a number holds":                         {func(w *world) error { return w.SetPlayers(math.MaxInt64, new(int64(math.MaxInt64))) }, OutOfRange},
		"a capacity through the SDK":                         {func(w *world) error { return w.SetPlayerCapacity(-1) }, OutOfRange},
		"a nameless player":                                  {func(w *world) error { _, err := w.PlayerConnect(""); return err }, Invalid},
		"a long name":                                        {func(w *world) error { _, err := w.PlayerConnect(long); return err }, Invalid},
		"a long name that leaves":                            {func(w *world) error { _, err := w.PlayerDisconnect(long); return err }, Invalid},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := answeredWorld(t, sdkGame())
			earlier := w.Snapshot().Game
			err := c.do(w)
			wantKind(t, err, c.want)
			if err != nil && !cmp.Equal(earlier, w.Snapshot().Game) {
				t.Errorf("a refused call changed the game: %s", cmp.Diff(earlier, w.Snapshot().Game))
			}
		})
	}
}

func TestAFullGameTakesNobody(t *testing.T) {
	w := answeredWorld(t, sdkGame())
	w.must(w.SetPlayerCapacity(1))
	w.wantPlayers(0, true)
	w.connect("ann")
	_, err := w.PlayerConnect("bob")
	wantKind(t, err, OutOfRange)
	w.wantPlayers(1, true)
	w.must(w.SetPlayerCapacity(0))
	if _, err := w.PlayerDisconnect("ann"); err != nil {
		t.Fatal(err)
	}
	_, err = w.PlayerConnect("bob")
	wantKind(t, err, OutOfRange)

	boundless := answeredWorld(t, sdkGame())
	boundless.answered(func(a *reportapi.Answer) { a.Server.Capacity = 0 })
	for i := range reportapi.MaxPlayerIDs {
		boundless.connect(fmt.Sprint(i))
	}
	_, err = boundless.PlayerConnect("one more")
	wantKind(t, err, OutOfRange)
}

func TestTheLastWordOnPlayersHolds(t *testing.T) {
	w := answeredWorld(t, sdkGame())
	w.connect("ann")
	w.must(w.SetPlayers(5, nil))
	w.wantPlayers(5, true)
	if ids := w.Snapshot().Game.Players.IDs; len(ids) != 0 {
		t.Errorf("names %v of a game that counts", ids)
	}
	w.connect("bob")
	w.wantPlayers(1, true)
}

func TestAProbesNumbersAreBounded(t *testing.T) {
	w := answeredWorld(t, probedGame())
	w.Answered(w.clock.Now(), -3, -1)
	w.wantPlayers(0, true)
	w.Answered(w.clock.Now(), math.MaxInt, math.MaxInt)
	w.wantPlayers(MaxPlayers, true)
	if got := w.Snapshot().Capacity; got != MaxPlayers {
		t.Errorf("capacity %d", got)
	}
}

func TestWhereCapacityComesFrom(t *testing.T) {
	config := probedGame()
	config.Capacity = 5
	w := newWorld(t, config)
	want := func(n int32) {
		t.Helper()
		if got := w.Snapshot().Capacity; got != n {
			t.Errorf("capacity %d, want %d", got, n)
		}
	}
	want(5)
	w.answered(nil)
	want(20)
	w.Answered(w.clock.Now(), 0, 0)
	want(20)
	w.Answered(w.clock.Now(), 0, 12)
	want(12)
	w.must(w.SetPlayerCapacity(7))
	want(7)
}

func TestCounters(t *testing.T) {
	count := func(n int64) CounterUpdate { return CounterUpdate{Count: &n} }
	capacity := func(n int64) CounterUpdate { return CounterUpdate{Capacity: &n} }
	add := func(n int64) CounterUpdate { return CounterUpdate{Add: n} }
	cases := map[string]struct {
		update CounterUpdate
		want   v1alpha1.Counter
		kind   Kind
	}{
		"set":                            {count(4), v1alpha1.Counter{Count: 4, Capacity: 4}, 0},
		"set to none":                    {count(0), v1alpha1.Counter{Count: 0, Capacity: 4}, 0},
		"set beyond":                     {count(5), v1alpha1.Counter{Count: 1, Capacity: 4}, OutOfRange},
		"set below":                      {count(-1), v1alpha1.Counter{Count: 1, Capacity: 4}, OutOfRange},
		"add":                            {add(3), v1alpha1.Counter{Count: 4, Capacity: 4}, 0},
		"add too much":                   {add(4), v1alpha1.Counter{Count: 1, Capacity: 4}, OutOfRange},
		"take":                           {add(-1), v1alpha1.Counter{Count: 0, Capacity: 4}, 0},
		"take too much":                  {add(-2), v1alpha1.Counter{Count: 1, Capacity: 4}, OutOfRange},
		"add what overflows":             {add(math.MaxInt64), v1alpha1.Counter{Count: 1, Capacity: 4}, OutOfRange},
		"take what overflows":            {add(math.MinInt64), v1alpha1.Counter{Count: 1, Capacity: 4}, OutOfRange},
		"more capacity":                  {capacity(math.MaxInt64), v1alpha1.Counter{Count: 1, Capacity: math.MaxInt64}, 0},
		"capacity takes the count along": {capacity(0), v1alpha1.Counter{Count: 0, Capacity: 0}, 0},
		"capacity below none":            {capacity(-1), v1alpha1.Counter{Count: 1, Capacity: 4}, OutOfRange},
		"capacity, count and more":       {CounterUpdate{Capacity: new(int64(9)), Count: new(int64(7)), Add: 2}, v1alpha1.Counter{Count: 9, Capacity: 9}, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, sdkGame())
			w.answered(keeping)
			got, err := w.UpdateCounter("rooms", c.update)
			wantKind(t, err, c.kind)
			if err == nil && got != c.want {
				t.Errorf("answer %+v, want %+v", got, c.want)
			}
			if got, err := w.Counter("rooms"); err != nil || got != c.want {
				t.Errorf("counter %+v, %v; want %+v", got, err, c.want)
			}
			if got := w.Snapshot().Game.Counters["rooms"]; got != c.want {
				t.Errorf("reported %+v, want %+v", got, c.want)
			}
		})
	}
	w := newWorld(t, sdkGame())
	w.answered(keeping)
	_, err := w.UpdateCounter("none", count(1))
	wantKind(t, err, NotFound)
}

func TestLists(t *testing.T) {
	long := strings.Repeat("x", reportapi.MaxValueBytes+1)
	full := []string{"a", "b", "c"}
	update := func(capacity *int64, values ...string) func(*world) error {
		return func(w *world) error { _, err := w.UpdateList("maps", capacity, values); return err }
	}
	add := func(v string) func(*world) error {
		return func(w *world) error { _, err := w.AddListValue("maps", v); return err }
	}
	remove := func(v string) func(*world) error {
		return func(w *world) error { _, err := w.RemoveListValue("maps", v); return err }
	}
	cases := map[string]struct {
		start []string
		do    func(*world) error
		want  []string
		kind  Kind
	}{
		"add":                            {full[:2], add("c"), full, 0},
		"add to a full one":              {full, add("d"), full, OutOfRange},
		"add what is there":              {full, add("a"), full, AlreadyExists},
		"add nothing":                    {full[:1], add(""), full[:1], Invalid},
		"add too long a word":            {full[:1], add(long), full[:1], Invalid},
		"remove":                         {full, remove("b"), []string{"a", "c"}, 0},
		"remove what isn't there":        {full, remove("d"), full, NotFound},
		"replace":                        {full, update(nil, "x", "y", "x"), []string{"x", "y"}, 0},
		"replace by nothing":             {full, func(w *world) error { _, err := w.UpdateList("maps", nil, []string{}); return err }, nil, 0},
		"replace by too many":            {full, update(nil, "w", "x", "y", "z"), full, OutOfRange},
		"replace by more with room":      {full, update(new(int64(4)), "w", "x", "y", "z"), []string{"w", "x", "y", "z"}, 0},
		"replace by too long a word":     {full, update(nil, long), full, Invalid},
		"less room takes values along":   {full, update(new(int64(1))), full[:1], 0},
		"room for too many":              {full, update(new(int64(MaxListCapacity + 1))), full, OutOfRange},
		"room for less than none":        {full, update(new(int64(-1))), full, OutOfRange},
		"a list that the Server has not": {full, func(w *world) error { _, err := w.AddListValue("none", "a"); return err }, full, NotFound},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, sdkGame())
			w.answered(func(a *reportapi.Answer) {
				a.Server.Lists = map[string]v1alpha1.List{"maps": {Capacity: 3, Values: c.start}}
			})
			untouched := append([]string{}, c.start...)
			wantKind(t, c.do(w), c.kind)
			got, err := w.List("maps")
			if diff := cmp.Diff(c.want, got.Values); err != nil || diff != "" {
				t.Errorf("list, %v (-want +got):\n%s", err, diff)
			}
			if diff := cmp.Diff(c.want, w.Snapshot().Game.Lists["maps"].Values); diff != "" {
				t.Errorf("reported (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(untouched, append([]string{}, c.start...)); diff != "" {
				t.Errorf("the operator's answer was changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMetadataStaysWithinItsBounds(t *testing.T) {
	w := answeredWorld(t, sdkGame())
	w.must(w.SetLabel("mode", "ctf"))
	w.must(w.SetAnnotation("map", "any text: \n ü"))
	want := reportapi.Game{
		Labels:      map[string]string{"agones.dev/sdk-mode": "ctf"},
		Annotations: map[string]string{"agones.dev/sdk-map": "any text: \n ü"},
	}
	got := w.Snapshot().Game
	if diff := cmp.Diff(want, reportapi.Game{Labels: got.Labels, Annotations: got.Annotations}); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	wantKind(t, w.SetLabel("mode", "no spaces"), Invalid)
	wantKind(t, w.SetLabel("no spaces", "x"), Invalid)
	wantKind(t, w.SetLabel(strings.Repeat("x", 64), "x"), Invalid)
	wantKind(t, w.SetLabel("", "x"), Invalid)
	wantKind(t, w.SetAnnotation("a/b", "x"), Invalid)
	wantKind(t, w.SetAnnotation("big", strings.Repeat("x", reportapi.MaxAnnotationBytes+1)), Invalid)
	for i := 1; i < reportapi.MaxMetadata; i++ {
		w.must(w.SetLabel(fmt.Sprintf("l%d", i), "x"))
	}
	wantKind(t, w.SetLabel("one-more", "x"), OutOfRange)
	w.must(w.SetLabel("mode", "again"))
}

// fillMetadata sets annotations of the greatest size until one is refused, and says
// how many were taken.
func fillMetadata(w *world, name string) (taken int, err error) {
	text := strings.Repeat("x", reportapi.MaxAnnotationBytes)
	for ; err == nil && taken < reportapi.MaxMetadata; taken++ {
		if err = w.SetAnnotation(fmt.Sprintf("%s%02d", name, taken), text); err != nil {
			break
		}
	}
	return taken, err
}

func wantMetadataFits(w *world) {
	w.t.Helper()
	now, total := w.Snapshot().Game, 0
	for _, all := range []map[string]string{now.Labels, now.Annotations} {
		for key, text := range all {
			total += len(key) + len(text)
		}
	}
	if total > reportapi.MaxMetadataBytes {
		w.t.Errorf("%d bytes, of which the operator takes %d", total, reportapi.MaxMetadataBytes)
	}
}

func TestAllMetadataTogetherIsBounded(t *testing.T) {
	w := answeredWorld(t, sdkGame())
	taken, err := fillMetadata(w, "a")
	wantKind(t, err, OutOfRange)
	// With its key each has a little more than 4 KiB, of which 32 would fill 128 KiB.
	if taken != 31 {
		t.Errorf("%d annotations were taken, want 31", taken)
	}
	wantMetadataFits(w)
	// What is there can be changed, and what is made smaller makes room.
	w.must(w.SetAnnotation("a00", strings.Repeat("y", reportapi.MaxAnnotationBytes)))
	w.must(w.SetLabel("mode", "ctf"))
	w.must(w.SetAnnotation("a00", ""))
	w.must(w.SetAnnotation("b", strings.Repeat("x", reportapi.MaxAnnotationBytes)))
	wantMetadataFits(w)

	// A sidecar that starts again takes of what was before what still fits.
	again := newWorld(t, sdkGame())
	_, err = fillMetadata(again, "new")
	wantKind(t, err, OutOfRange)
	was := w.Snapshot().Game
	again.answered(restoring(&was))
	wantMetadataFits(again)
	if again.Snapshot().Game.Labels["agones.dev/sdk-mode"] != "ctf" {
		t.Error("a label that fits wasn't restored")
	}
}
