package guard

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

func at(d time.Duration) time.Time { return epoch.Add(time.Hour + d) }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func admit(t *testing.T, g *Guard, rules *Rules, from string) *Stay {
	t.Helper()
	v, reason := g.Admit(rules, addr(from), conn.NewBudget(1<<20))
	if reason != "" {
		t.Fatalf("%s may not enter: %s", from, reason)
	}
	return &v
}

func TestWhoMayWakeAServiceGoesByTheListsOfNetworks(t *testing.T) {
	for name, c := range map[string]struct {
		allow, deny []string
		from        string
		want        bool
	}{
		"nothing is said":                     {nil, nil, "192.0.2.1", true},
		"one of those allowed":                {[]string{"198.51.100.0/24", "192.0.2.0/24"}, nil, "192.0.2.1", true},
		"nobody who is allowed":               {[]string{"192.0.2.0/24"}, nil, "192.0.3.1", false},
		"somebody who is denied":              {nil, []string{"192.0.2.0/24"}, "192.0.2.255", false},
		"nobody who is denied":                {nil, []string{"192.0.2.0/24"}, "192.0.3.0", true},
		"denied among those allowed":          {[]string{"192.0.2.0/24"}, []string{"192.0.2.8/29"}, "192.0.2.9", false},
		"allowed beside those denied":         {[]string{"192.0.2.0/24"}, []string{"192.0.2.8/29"}, "192.0.2.7", true},
		"IPv6":                                {[]string{"2001:db8::/32"}, nil, "2001:db8:ffff::1", true},
		"IPv6 of another network":             {[]string{"2001:db8::/32"}, nil, "2001:db9::1", false},
		"IPv4 where IPv6 is allowed":          {[]string{"::/0"}, nil, "192.0.2.1", false},
		"IPv4 in IPv6":                        {nil, []string{"192.0.2.0/24"}, "::ffff:192.0.2.1", false},
		"a network with bits beyond its mask": {nil, []string{"192.0.2.77/24"}, "192.0.2.1", false},
		"a list of which nothing is readable": {[]string{"everybody"}, nil, "192.0.2.1", false},
	} {
		rules := NewRules(c.allow, c.deny)
		v := admit(t, &Guard{}, &rules, c.from)
		want := proto.Denied
		if c.want {
			want = ""
		}
		if got := v.Hold(); got != want {
			t.Errorf("%s: holding says %q, want %q", name, got, want)
		}
		if got := v.Ask(at(0), ""); got != want {
			t.Errorf("%s: asking says %q, want %q", name, got, want)
		}
	}
}

// ask is a new client who asks and leaves.
func ask(t *testing.T, g *Guard, rules *Rules, from string, now time.Time) proto.Reason {
	t.Helper()
	v := admit(t, g, rules, from)
	defer v.Leave()
	return v.Ask(now, rules.Refuses(now))
}

func TestASourceMayAskSoOftenAndOthersAreNotHurt(t *testing.T) {
	g, rules := &Guard{}, &Rules{PerSourceRate: 3}
	expect := func(from string, now time.Duration, want proto.Reason) {
		t.Helper()
		if got := ask(t, g, rules, from, at(now)); got != want {
			t.Errorf("%s after %s: %q, want %q", from, now, got, want)
		}
	}
	for range 3 {
		expect("192.0.2.1", 0, "")
	}
	expect("192.0.2.1", 0, proto.SourceRate)
	expect("::ffff:192.0.2.1", 0, proto.SourceRate)
	expect("192.0.2.2", 0, "")
	// One is back every 20 seconds, whatever was refused meanwhile.
	expect("192.0.2.1", 19*time.Second, proto.SourceRate)
	expect("192.0.2.1", 20*time.Second, "")
	expect("192.0.2.1", 20*time.Second, proto.SourceRate)
	// All are back after a minute's silence, and no more.
	for range 3 {
		expect("192.0.2.1", 80*time.Second, "")
	}
	expect("192.0.2.1", 80*time.Second, proto.SourceRate)
	// A household has many addresses of IPv6.
	for _, from := range []string{"2001:db8::1", "2001:db8::2", "2001:db8::ffff:3"} {
		expect(from, 0, "")
	}
	expect("2001:db8::4", 0, proto.SourceRate)
	expect("2001:db8:0:1::4", 0, "")
}

func TestWhoLookedAtTheClockFirstMayComeSecond(t *testing.T) {
	g, rules := &Guard{}, &Rules{PerSourceRate: 2}
	for i, now := range []time.Duration{time.Millisecond, 0} {
		if got := ask(t, g, rules, "192.0.2.1", at(now)); got != "" {
			t.Errorf("client %d: %q", i, got)
		}
	}
	if got := ask(t, g, rules, "192.0.2.1", at(time.Millisecond)); got != proto.SourceRate {
		t.Errorf("a third: %q", got)
	}
}

func TestNobodyCanMakeTheGuardForgetHim(t *testing.T) {
	g, rules := &Guard{}, &Rules{PerSourceRate: 1}
	if got := ask(t, g, rules, "192.0.2.1", at(0)); got != "" {
		t.Fatal(got)
	}
	// As many others come as a table could ever have had room for.
	from := addr("10.0.0.0")
	for range 100_000 {
		from = from.Next()
		v, _ := g.Admit(rules, from, nil)
		v.Ask(at(time.Second), "")
		v.Leave()
	}
	if got := ask(t, g, rules, "192.0.2.1", at(2*time.Second)); got != proto.SourceRate {
		t.Errorf("after many others the source gets %q, want %q", got, proto.SourceRate)
	}
}

// Cells are shared: few sources are taken for others that have used up theirs.
func TestFewAreTakenForOthers(t *testing.T) {
	g, rules := &Guard{}, &Rules{PerSourceRate: 1}
	from, refused := addr("10.0.0.0"), 0
	for range 400 {
		from = from.Next()
		if ask(t, g, rules, from.String(), at(0)) != "" {
			refused++
		}
	}
	// In the end 400 sources use a fifth of the cells, and so the chance of two that are
	// used is a 25th.
	if refused > 40 {
		t.Errorf("%d of 400 were refused for what others did", refused)
	}
}

func TestAServiceMayBeAskedForSoOften(t *testing.T) {
	g, rules := &Guard{}, &Rules{PerServiceRate: 2}
	for i, want := range []proto.Reason{"", "", proto.ServiceRate} {
		if got := ask(t, g, rules, "192.0.2."+string(rune('1'+i)), at(0)); got != want {
			t.Errorf("client %d: %q, want %q", i, got, want)
		}
	}
	if got := ask(t, g, rules, "192.0.2.9", at(30*time.Second)); got != "" {
		t.Errorf("half a minute later: %q", got)
	}
	// Who was let in once isn't counted again.
	v := admit(t, &Guard{}, &Rules{PerServiceRate: 1}, "192.0.2.1")
	if a, b := v.Ask(at(0), ""), v.Ask(at(0), ""); a != "" || b != "" {
		t.Errorf("one client asks twice: %q, %q", a, b)
	}
}

func TestWhatASourceHasAtOnceIsBoundedAndGivenBack(t *testing.T) {
	g, rules := &Guard{}, &Rules{PerSource: Limits{Connections: 1, Sessions: 3, Bytes: 100}}
	budget := conn.NewBudget(1 << 20)
	here := func() (*Stay, proto.Reason) {
		v, reason := g.Admit(rules, addr("2001:db8::1"), budget)
		return &v, reason
	}
	first, _ := here()
	second, _ := here()
	third, _ := here()
	if _, reason := here(); reason != proto.SourceSessions {
		t.Errorf("a fourth session: %q", reason)
	}
	if other := admit(t, g, rules, "2001:db8:0:1::1"); other.Hold() != "" {
		t.Error("another source may not hold")
	}
	if a, b := first.Hold(), first.Hold(); a != "" || b != "" {
		t.Errorf("one client holds twice: %q, %q", a, b)
	}
	if got := second.Hold(); got != proto.SourceConnections {
		t.Errorf("a second without a server: %q", got)
	}
	first.Served()
	if got := second.Hold(); got != "" {
		t.Errorf("once the first has its server: %q", got)
	}
	if first.Budget(budget) != second.Budget(budget) {
		t.Error("clients of one source have different budgets")
	}
	if all := first.Budget(budget); all.All(101) || !all.All(100) || second.Budget(budget).All(1) || budget.Used() != 100 {
		t.Errorf("of 100 bytes %d are kept", budget.Used())
	}
	first.Budget(budget).Give(100)
	for _, v := range []*Stay{first, first, second, third} {
		v.Leave()
	}
	again, reason := here()
	if reason != "" || again.Hold() != "" || budget.Used() != 0 {
		t.Errorf("after all have left: %q, and %d bytes", reason, budget.Used())
	}
	again.Leave()
	if len(g.sources) != 1 {
		t.Errorf("%d sources are remembered, want the one that is here", len(g.sources))
	}
}

func TestWithoutRulesNothingIsCounted(t *testing.T) {
	g, rules := &Guard{}, &Rules{}
	if n := testing.AllocsPerRun(100, func() {
		v, _ := g.Admit(rules, addr("192.0.2.1"), nil)
		_, _ = v.Hold(), v.Ask(at(0), "")
		v.Served()
		v.Leave()
	}); n != 0 {
		t.Errorf("a client allocates %v times", n)
	}
	if len(g.sources) > 0 || g.bySource.made.Load() != nil {
		t.Error("something was counted")
	}
}

func TestRulesThatGoByTheSourceAreHidden(t *testing.T) {
	rules := NewRules([]string{"192.0.2.0/24"}, []string{"10.0.0.0/8"})
	rules.PerSource, rules.PerSourceRate, rules.PerServiceRate, rules.SourceIPsPreserved = Limits{1, 1, 1}, 1, 1, true
	hidden := rules.Hidden()
	g := &Guard{}
	for _, want := range []proto.Reason{"", proto.ServiceRate} {
		if got := ask(t, g, &hidden, "10.0.0.1", at(0)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAnswersToWhoMayBeElsewhereAreRare(t *testing.T) {
	answered := func(g *Guard, rules *Rules, from ...string) (n int) {
		for range 2000 {
			for _, f := range from {
				if g.Answer(rules, addr(f), at(0)) {
					n++
				}
			}
		}
		return n
	}
	preserved := &Rules{SourceIPsPreserved: true}
	for name, c := range map[string]struct {
		rules *Rules
		from  []string
		want  int
	}{
		"one address":              {preserved, []string{"192.0.2.1"}, 50},
		"two of a network":         {preserved, []string{"192.0.2.1", "192.0.2.200"}, 50},
		"two networks":             {preserved, []string{"192.0.2.1", "192.0.3.1"}, 100},
		"two of a network of IPv6": {preserved, []string{"2001:db8::1", "2001:db8:0:ff::1"}, 50},
		"two networks of IPv6":     {preserved, []string{"2001:db8::1", "2001:db8:0:100::1"}, 100},
		"who is nobody knows":      {&Rules{}, []string{"192.0.2.1"}, 1000},
	} {
		if got := answered(&Guard{}, c.rules, c.from...); got != c.want {
			t.Errorf("%s: %d answers at once, want %d", name, got, c.want)
		}
	}
	// From everywhere.
	g, n := &Guard{}, 0
	for range 5000 {
		from := netip.AddrFrom4([4]byte{10, byte(n >> 8), byte(n), 1})
		if g.Answer(preserved, from, at(0)) {
			n++
		}
	}
	if n != 1000 {
		t.Errorf("%d answers to all the world at once, want 1000", n)
	}
}

type closer struct{ closed bool }

func (c *closer) Cut() { c.closed = true }

func TestTheOldestHandshakeMakesRoom(t *testing.T) {
	g := &Guard{}
	var all [5]closer
	begin := func(i int) (Handshake, bool) { return g.Handshake(&all[i], 2) }
	first, _ := begin(0)
	second, full := begin(1)
	if full {
		t.Error("two don't fit")
	}
	second.End()
	if _, full := begin(2); full || all[0].closed {
		t.Error("a place that was given back is not free")
	}
	if _, full := begin(3); !full || !all[0].closed || all[2].closed {
		t.Errorf("closed are %v, want the oldest", all)
	}
	first.End() // It ends once more by itself.
	if _, full := begin(4); !full || !all[2].closed || all[1].closed || all[3].closed {
		t.Errorf("closed are %v, want the next", all)
	}
}

func TestTheGuardIsForManyAtOnce(t *testing.T) {
	g, rules := &Guard{}, &Rules{PerSourceRate: 100, PerServiceRate: 60_000, PerSource: Limits{Connections: 1000, Sessions: 1000, Bytes: 1 << 20}, SourceIPsPreserved: true}
	budget := conn.NewBudget(1 << 20)
	var wg sync.WaitGroup
	var mu sync.Mutex
	asked := 0
	for range 8 {
		wg.Go(func() {
			for range 100 {
				v, _ := g.Admit(rules, addr("192.0.2.1"), budget)
				b := v.Budget(budget)
				got := b.Some(10)
				if v.Ask(at(0), "") == "" {
					mu.Lock()
					asked++
					mu.Unlock()
				}
				b.Give(got)
				v.Served()
				v.Leave()
			}
		})
	}
	wg.Wait()
	// Who comes at the same instant may have a token of another row each.
	if asked < 100 || asked > 108 || len(g.sources) != 0 || budget.Used() != 0 {
		t.Errorf("%d of 100 could ask, %d sources and %d bytes are left", asked, len(g.sources), budget.Used())
	}
}

// It ends by the clock: the rules don't change.
func TestNobodyMayAskAServiceThatIsKeptAsleep(t *testing.T) {
	rules := NewRules(nil, []string{"192.0.2.0/24"})
	rules.DownUntil = at(time.Minute)
	hidden := rules.Hidden()
	never := Rules{Nobody: true, DownUntil: at(time.Minute)}
	for _, c := range []struct {
		rules *Rules
		from  string
		now   time.Time
		want  proto.Reason
	}{
		{&rules, "198.51.100.1", at(59 * time.Second), proto.Maintenance},
		{&rules, "198.51.100.1", at(time.Minute), ""},
		{&rules, "192.0.2.1", at(0), proto.Denied},
		{&hidden, "192.0.2.1", at(0), proto.Maintenance},
		{&never, "192.0.2.1", at(0), proto.Maintenance},
		{&never, "192.0.2.1", at(time.Minute), proto.Denied},
		{&Rules{}, "192.0.2.1", at(0), ""},
	} {
		if got := ask(t, &Guard{}, c.rules, c.from, c.now); got != c.want {
			t.Errorf("%s at %s by %+v is refused for %q, want %q", c.from, c.now, *c.rules, got, c.want)
		}
	}
}
