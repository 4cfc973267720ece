package gametype

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/api/v1alpha1"
)

var update = flag.Bool("update", false, "write testdata/*.golden; read what changed")

// story is a scenario with its table.
type story struct {
	*world
	rows [][]string
	// columns are the templates that the table shows.
	columns []string
}

// row writes down what there is: of each Fleet how many Servers it is to have, how
// many are active, how many of those are Ready, and how many drain.
func (s *story) row(what, why string) {
	s.rows = append(s.rows, append(append([]string{what}, s.cells()...), why))
}

func (s *story) cells() []string {
	var cells []string
	for _, template := range s.columns {
		f, ok := s.real[template]
		if !ok {
			cells = append(cells, "-")
			continue
		}
		var active, ready, draining int
		for _, server := range f.servers {
			switch {
			case server.draining:
				draining++
			case server.ready:
				active, ready = active+1, ready+1
			default:
				active++
			}
		}
		cells = append(cells, fmt.Sprintf("%d: %d %d %d", f.desired, active, ready, draining))
	}
	return cells
}

// settle makes passes until nobody has anything to do, and checks each step.
func (s *story) settle() {
	s.t.Helper()
	for range 200 {
		ready, counted := s.ready()
		s.showAll()
		p := s.pass()
		acted := false
		for range 3 {
			for _, f := range s.fleets() {
				acted = s.act(f) || acted
			}
		}
		nowReady, nowCounted := s.ready()
		most, least := s.bounds()
		if s.spec.Update.Strategy != v1alpha1.UpdateRecreate {
			if nowReady < ready && nowReady < least {
				s.t.Errorf("%q: %d were Ready and %d are, which is fewer than %d", p.why, ready, nowReady, least)
			}
			if nowCounted > counted && nowCounted > most {
				s.t.Errorf("%q: %d Servers became %d, which is more than %d", p.why, counted, nowCounted, most)
			}
		}
		if p.writes() {
			s.row("", p.why)
		}
		if !acted && !p.writes() {
			if last := s.rows; len(last) > 0 && !slices.Equal(last[len(last)-1][1:len(s.columns)+1], s.cells()) {
				s.row("Fleets act", "")
			}
			return
		}
	}
	s.t.Fatal("the controller never comes to rest")
}

// then lets something happen.
func (s *story) then(what string, happens func()) {
	s.t.Helper()
	happens()
	s.row(what, "")
	s.settle()
}

func (s *story) edit(template string) {
	s.t.Helper()
	s.then("template "+template, func() { s.template = template })
}

func (s *story) scale(n int32) {
	s.t.Helper()
	s.then(fmt.Sprintf("replicas %d", n), func() { s.replicas = n })
}

// start lets all Servers of a template that start get Ready, again and again, as
// long as there are any.
func (s *story) start(template string) {
	s.t.Helper()
	for s.starts(template) {
		s.then(template+" gets Ready", func() {
			for _, server := range s.real[template].servers {
				server.ready = server.ready || !server.draining
			}
		})
	}
}

func (s *story) starts(template string) bool {
	if f, ok := s.real[template]; ok {
		for _, server := range f.servers {
			if !server.ready && !server.draining {
				return true
			}
		}
	}
	return false
}

// play puts players on so many Servers of the first template.
func (s *story) play(servers int) {
	for _, server := range s.real["a"].servers[:servers] {
		server.players = 2
	}
}

func (s *story) leave(template string) {
	s.t.Helper()
	s.then("players of "+template+" leave", func() {
		for _, server := range s.real[template].servers {
			server.players = 0
		}
	})
}

// want checks how it ends.
func (s *story) want(template string, active, ready, draining int) {
	s.t.Helper()
	f, ok := s.real[template]
	if !ok {
		if active+ready+draining > 0 {
			s.t.Errorf("there is no Fleet of %s", template)
		}
		return
	}
	var a, r, d int
	for _, server := range f.servers {
		switch {
		case server.draining:
			d++
		case server.ready:
			a, r = a+1, r+1
		default:
			a++
		}
	}
	if a != active || r != ready || d != draining {
		s.t.Errorf("%s has %d active, %d ready, %d draining; want %d, %d, %d", template, a, r, d, active, ready, draining)
	}
}

func (s *story) table(title string) string {
	rows := append([][]string{slices.Concat([]string{"what happens"}, s.columns, []string{"why"})}, s.rows...)
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n# Of each revision: wanted: active, ready of them, and draining Servers.\n", title)
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s | ", widths[i], cell)
		}
		b.WriteString(strings.TrimRight(line.String(), " |") + "\n")
	}
	return b.String()
}

// begin gives a world with so many Ready Servers of template a.
func begin(t *testing.T, replicas int32, update v1alpha1.UpdateSpec, columns string) *story {
	s := &story{world: newWorld(t, replicas, update), columns: strings.Fields(columns)}
	s.settle()
	for s.starts("a") {
		for _, server := range s.real["a"].servers {
			server.ready = true
		}
		s.settle()
	}
	s.rows = nil
	s.row("", "")
	return s
}

func TestSteps(t *testing.T) {
	stories := map[string]struct {
		title string
		play  func(t *testing.T) *story
	}{
		"plain": {"One more at a time: maxSurge 1, maxUnavailable 0.", func(t *testing.T) *story {
			s := begin(t, 3, step("1", "0"), "a b")
			s.edit("b")
			s.start("b")
			s.want("a", 0, 0, 0)
			s.want("b", 3, 3, 0)
			return s
		}},
		"surge-percent": {"Half of five is rounded up to three more: maxSurge 50%, maxUnavailable 0.", func(t *testing.T) *story {
			s := begin(t, 5, step("50%", "0"), "a b")
			s.edit("b")
			s.want("b", 3, 0, 0)
			s.start("b")
			s.want("a", 0, 0, 0)
			s.want("b", 5, 5, 0)
			return s
		}},
		"unavailable-only": {"Never one more, one fewer at a time: maxSurge 0, maxUnavailable 1.", func(t *testing.T) *story {
			s := begin(t, 3, step("0", "1"), "a b")
			s.edit("b")
			s.want("a", 2, 2, 0)
			s.want("b", 1, 0, 0)
			s.start("b")
			s.want("a", 0, 0, 0)
			s.want("b", 3, 3, 0)
			return s
		}},
		"broken": {"A revision that never gets Ready costs nothing, and a third one goes past it: maxSurge 1, maxUnavailable 0.", func(t *testing.T) *story {
			s := begin(t, 3, step("1", "0"), "a b c")
			s.edit("b")
			s.then("b stays as it is", func() { s.now = s.now.Add(time.Hour) })
			s.want("a", 3, 3, 0)
			s.want("b", 1, 0, 0)
			s.edit("c")
			s.want("b", 0, 0, 0)
			s.start("c")
			s.want("a", 0, 0, 0)
			s.want("c", 3, 3, 0)
			return s
		}},
		"broken-and-crash": {"Nor does it cost an old Server that has to start again: maxSurge 1, maxUnavailable 0.", func(t *testing.T) *story {
			s := begin(t, 3, step("1", "0"), "a b")
			s.edit("b")
			s.then("one of a crashes", func() { s.real["a"].servers[0].ready = false })
			s.want("a", 3, 2, 0)
			s.then("it is back", func() { s.real["a"].servers[0].ready = true })
			s.want("a", 3, 3, 0)
			s.want("b", 1, 0, 0)
			return s
		}},
		"broken-and-sleep": {"A wake brings the revision that has been Ready, and tries the newer one beside it: maxSurge 1, maxUnavailable 0.", func(t *testing.T) *story {
			s := begin(t, 2, step("1", "0"), "a b")
			s.edit("b")
			s.want("b", 1, 0, 0)
			s.scale(0)
			s.want("a", 0, 0, 0)
			s.scale(2)
			s.start("a")
			s.want("a", 2, 2, 0)
			s.want("b", 1, 0, 0)
			s.then("b is mended, and gets Ready", func() { s.real["b"].servers[0].ready = true })
			s.start("b")
			s.want("a", 0, 0, 0)
			s.want("b", 2, 2, 0)
			return s
		}},
		"allocated": {"Allocated Servers stay until they are released, and hold nothing up: maxSurge 1, maxUnavailable 0.", func(t *testing.T) *story {
			s := begin(t, 3, step("1", "0"), "a b")
			for _, server := range s.real["a"].servers {
				server.allocated = true
			}
			s.edit("b")
			s.start("b")
			s.want("a", 3, 3, 0)
			s.want("b", 3, 3, 0)
			s.then("a is released", func() {
				for _, server := range s.real["a"].servers {
					server.allocated = false
				}
			})
			s.want("a", 0, 0, 0)
			return s
		}},
		"revert": {"Going back in the middle takes drained Servers back: maxSurge 1, maxUnavailable 0.", func(t *testing.T) *story {
			s := begin(t, 3, step("1", "0"), "a b")
			s.play(3)
			s.edit("b")
			s.then("b gets Ready", func() { s.real["b"].servers[0].ready = true })
			s.want("a", 2, 2, 1)
			s.edit("a")
			s.start("a")
			s.want("a", 3, 3, 0)
			s.want("b", 0, 0, 0)
			if s.real["a"].number <= s.real["b"].number {
				t.Errorf("a came back as revision %d, after %d", s.real["a"].number, s.real["b"].number)
			}
			return s
		}},
		"supersession": {"A third revision comes while the second takes over: maxSurge 1, maxUnavailable 0.", func(t *testing.T) *story {
			s := begin(t, 4, step("1", "0"), "a b c")
			s.edit("b")
			s.then("b gets Ready", func() { s.real["b"].servers[0].ready = true })
			s.want("a", 3, 3, 0)
			s.want("b", 2, 1, 0)
			s.edit("c")
			s.start("c")
			s.want("a", 0, 0, 0)
			s.want("b", 0, 0, 0)
			s.want("c", 4, 4, 0)
			return s
		}},
		"more-and-fewer": {"Other numbers are asked for in the middle: maxSurge 1, maxUnavailable 0.", func(t *testing.T) *story {
			s := begin(t, 3, step("1", "0"), "a b")
			s.edit("b")
			s.scale(5)
			s.want("a", 5, 3, 0)
			s.want("b", 1, 0, 0)
			s.scale(2)
			s.want("a", 2, 2, 0)
			s.want("b", 1, 0, 0)
			s.start("b")
			s.want("a", 0, 0, 0)
			s.want("b", 2, 2, 0)
			return s
		}},
		"occupied": {"Who plays stays, for as long as it takes: maxSurge 1, maxUnavailable 0.", func(t *testing.T) *story {
			s := begin(t, 3, step("1", "0"), "a b")
			s.play(2)
			s.edit("b")
			s.start("b")
			s.want("a", 0, 0, 2)
			s.want("b", 3, 3, 0)
			s.then("a week goes by", func() { s.now = s.now.Add(7 * 24 * time.Hour) })
			s.want("a", 0, 0, 2)
			s.leave("a")
			s.want("a", 0, 0, 0)
			return s
		}},
		"retire-after": {"Who plays has an hour from when the last old Server was told to drain: retireAfter 1h.", func(t *testing.T) *story {
			s := begin(t, 2, retiring(step("1", "0"), time.Hour), "a b")
			s.play(1)
			s.edit("b")
			s.start("b")
			s.then("59 minutes go by", func() { s.now = s.now.Add(59 * time.Minute) })
			s.want("a", 0, 0, 1)
			s.then("a minute goes by", func() { s.now = s.now.Add(time.Minute) })
			s.want("a", 0, 0, 0)
			s.want("b", 2, 2, 0)
			return s
		}},
		"recreate": {"New ones come when no old one takes players; those with players drain: Recreate.", func(t *testing.T) *story {
			s := begin(t, 3, v1alpha1.UpdateSpec{Strategy: v1alpha1.UpdateRecreate}, "a b")
			s.play(1)
			s.edit("b")
			s.want("a", 0, 0, 1)
			s.want("b", 3, 0, 0)
			s.start("b")
			s.leave("a")
			s.want("a", 0, 0, 0)
			s.want("b", 3, 3, 0)
			return s
		}},
		"asleep": {"An update of a game that sleeps makes nothing, and it wakes with the old revision, and the new one beside it: maxSurge 1, maxUnavailable 0.", func(t *testing.T) *story {
			s := begin(t, 2, step("1", "0"), "a b")
			s.scale(0)
			s.want("a", 0, 0, 0)
			s.edit("b")
			s.want("b", 0, 0, 0)
			s.scale(2)
			s.want("a", 2, 0, 0)
			s.want("b", 1, 0, 0)
			s.start("b")
			s.want("a", 0, 0, 0)
			s.want("b", 2, 2, 0)
			return s
		}},
		"sleep-in-the-middle": {"A game falls asleep during an update, and wakes with the new revision: maxSurge 1, maxUnavailable 0.", func(t *testing.T) *story {
			s := begin(t, 3, step("1", "0"), "a b")
			s.edit("b")
			s.then("b gets Ready", func() { s.real["b"].servers[0].ready = true })
			s.scale(0)
			s.want("a", 0, 0, 0)
			s.want("b", 0, 0, 0)
			s.scale(3)
			s.start("b")
			s.want("b", 3, 3, 0)
			return s
		}},
		"history": {"Two empty Fleets are kept for who goes back, the newest ones: revisionHistoryLimit 2.", func(t *testing.T) *story {
			s := begin(t, 1, step("1", "0"), "a b c d")
			s.spec.RevisionHistoryLimit = new(int32(2))
			for _, template := range []string{"b", "c", "d"} {
				s.edit(template)
				s.start(template)
			}
			if _, kept := s.real["a"]; kept || len(s.real) != 3 {
				t.Errorf("%d Fleets are kept, a among them: %t", len(s.real), kept)
			}
			return s
		}},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			s := story.play(t)
			if s.lost > 0 {
				t.Errorf("%d occupied Servers were ended", s.lost)
			}
			got, file := s.table(story.title), filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the steps are others (-want +got):\n%s", diff)
			}
		})
	}
}
