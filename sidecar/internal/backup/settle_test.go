package backup

import (
	"errors"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/go-logr/logr"

	"dormouse.dev/dormouse/sidecar/internal/backup/store"
)

// One that is given up leaves what was there, or what it was to bring, wherever it ended.
func TestARestorationThatIsGivenUpLeavesTheDisksWhole(t *testing.T) {
	for name, lasts := range map[string]int{"once": 0, "from then on": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			old, restored := 0, 0
			for at := 1; ; at++ {
				s := newScene(t)
				report, err := s.report(failing(at, at+lasts))
				if err == nil {
					break
				}
				o := s.options(commandSettle)
				o.Archive = store.Location{}
				if _, err := s.run(t.Context(), t, o); err != nil {
					t.Fatalf("after a failure at step %d: %v", at, err)
				}
				if !report.Between && s.isOld(t) {
					old++
					continue
				}
				restored++
				if s.checkRestored(t); t.Failed() {
					t.Fatalf("after a failure at step %d it isn't whole", at)
				}
			}
			if old < 10 || lasts > 0 && restored < 10 {
				t.Errorf("%d were as they had been, and %d restored", old, restored)
			}
		})
	}
	s := newScene(t)
	if _, err := settle(t.Context(), s.options(commandSettle), logr.Discard(), nil); err != nil || !s.isOld(t) {
		t.Errorf("what never began isn't as it was (%v)", err)
	}
	check(t, s.restore())
	_, err := settle(t.Context(), s.options(commandSettle), logr.Discard(), nil)
	check(t, err)
	s.checkRestored(t)
}

// A disk may be gone by then, or be another one. What is left is whole.
func TestARestorationThatIsGivenUpNeedsNoDiskThatIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		lost int
		anew bool
	}{"the first is gone": {0, false}, "the second is gone": {1, false}, "the first is made anew": {0, true}, "the second is made anew": {1, true}} {
		t.Run(name, func(t *testing.T) {
			old, restored := 0, 0
			for at := 1; ; at++ {
				s := newScene(t)
				_, failed := s.report(failing(at, 1<<20))
				o := s.options(commandSettle)
				if c.anew {
					dir := o.Disks[c.lost].Path
					_ = os.Chmod(dir+"/sealed", 0o755)
					check(t, errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)))
				} else {
					o.Disks = slices.Delete(o.Disks, c.lost, c.lost+1)
				}
				if report, err := settle(t.Context(), o, logr.Discard(), nil); err != nil {
					t.Fatalf("after a failure at step %d: %v, %+v", at, err, report)
				}
				is := visible(tree(t, []string{s.world, s.mods}[1-c.lost]))
				switch {
				case maps.Equal(is, s.new[1-c.lost]):
					restored++
				case maps.Equal(is, visible(maps.Clone(s.old[1-c.lost]))):
					old++
				default:
					t.Fatalf("after a failure at step %d the disk that is left has %v", at, is)
				}
				if all := tree(t, o.Disks[0].Path); c.anew && c.lost == 0 && len(all) > 0 {
					t.Fatalf("after a failure at step %d the new disk has %v", at, all)
				}
				if failed == nil {
					break
				}
			}
			if old < 10 || restored < 5 {
				t.Errorf("%d were as they had been, and %d restored", old, restored)
			}
		})
	}
}

// While it is undone a disk may have nothing of it any more and another one still have all: neither is new.
func TestARestorationThatIsGivenUpWhileItIsUndoneIsWhole(t *testing.T) {
	ends := 0
	for fail := 1; ; fail++ {
		if _, err := newScene(t).report(failing(fail, fail)); err == nil {
			break
		}
		for end := fail + 1; ; end++ {
			s, step, ended := newScene(t), 0, false
			_, _ = s.report(func(string) error {
				step++
				ended = ended || step >= end
				if step == fail || ended {
					return errInjected
				}
				return nil
			})
			if !ended {
				break
			}
			ends++
			if _, err := settle(t.Context(), s.options(commandSettle), logr.Discard(), nil); err != nil {
				t.Fatalf("after failures at step %d and from %d on: %v", fail, end, err)
			}
			if s.isOld(t) {
				continue
			}
			if s.checkRestored(t); t.Failed() {
				t.Fatalf("after failures at step %d and from %d on it isn't whole", fail, end)
			}
		}
	}
	if ends < 80 {
		t.Errorf("it ended %d times", ends)
	}
}

// What is done is no disk between, though something that it left can't be deleted.
func TestARestorationThatIsDoneIsGivenUp(t *testing.T) {
	s := newScene(t)
	at := ""
	_, err := s.report(func(what string) error {
		if at == "" && what == "world: unmark verified" {
			at = what
			return errInjected
		}
		return nil
	})
	if !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	report, err := settle(t.Context(), s.options(commandSettle), logr.Discard(), failing(1, 1<<20))
	if !errors.Is(err, errInjected) || report.Between {
		t.Errorf("it ends with %v, and reports %+v", err, report)
	}
}

// A disk that was lost since, or made anew, doesn't keep the others half moved.
func TestARestorationThatIsGivenUpLeavesTheDisksWholeThatThereAre(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, scene, *Options){
		"gone": func(_ *testing.T, _ scene, o *Options) { o.Disks = o.Disks[:1] },
		"made anew": func(t *testing.T, s scene, _ *Options) {
			check(t, errors.Join(os.RemoveAll(s.mods), os.Mkdir(s.mods, 0o755)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			halfMoved := 0
			for at := 1; ; at++ {
				s := newScene(t)
				report, err := s.report(failing(at, 1<<20))
				if err == nil {
					break
				}
				if report.Between {
					halfMoved++
				}
				o := s.options(commandSettle)
				lose(t, s, &o)
				if _, err := settle(t.Context(), o, logr.Discard(), nil); err != nil {
					t.Fatalf("after a failure at step %d: %v", at, err)
				}
				is := visible(tree(t, s.world))
				if !maps.Equal(is, visible(maps.Clone(s.old[0]))) && !maps.Equal(is, s.new[0]) {
					t.Fatalf("after a failure at step %d the disk has %v", at, is)
				}
			}
			if halfMoved < 10 {
				t.Errorf("the disks were half moved %d times", halfMoved)
			}
		})
	}
}
