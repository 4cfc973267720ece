package disklock

import (
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

var lobby = types.NamespacedName{Namespace: "games", Name: "lobby"}

// calls are those that a table makes.
type calls struct{ released, denied []types.NamespacedName }

func newTable() (*Table, *calls) {
	var all calls
	return New(
		func(s types.NamespacedName) { all.released = append(all.released, s) },
		func(s types.NamespacedName) { all.denied = append(all.denied, s) },
	), &all
}

func TestACopyAndAStartKeepEachOtherOut(t *testing.T) {
	table, said := newTable()
	end, holder := table.Start(lobby)
	if holder != "" || table.Hold(lobby, "Backup lobby-1") {
		t.Fatal("a game that starts doesn't keep a copy out")
	}
	end()
	end() // once more changes nothing
	for range 2 {
		if !table.Hold(lobby, "Backup lobby-1") {
			t.Fatal("whoever has the disks can't take them again")
		}
	}
	if table.Hold(lobby, "Restore undo") {
		t.Fatal("two can hold the disks")
	}
	if table.Wanted(lobby) {
		t.Error("a game waits that never came")
	}
	if end, holder := table.Start(lobby); holder != "Backup lobby-1" || end != nil {
		t.Errorf("a game starts, and %q holds the disks", holder)
	}
	if !table.Wanted(lobby) || len(said.denied) != 1 || len(said.released) != 0 {
		t.Errorf("nobody knows that a game waits: %+v", said)
	}
	table.Release(lobby, "Restore undo") // which doesn't have them
	if _, holder := table.Start(lobby); holder == "" {
		t.Error("a stranger lets the disks go")
	}
	table.Release(lobby, "Backup lobby-1")
	if table.Wanted(lobby) || len(said.released) != 1 {
		t.Errorf("the game that waits isn't told: %+v", said)
	}
	if end, holder = table.Start(lobby); holder != "" {
		t.Errorf("%q holds what was let go", holder)
	}
	end()
}

func TestDisksThatNobodyWaitsForAreLetGoInSilence(t *testing.T) {
	table, said := newTable()
	table.Hold(lobby, "Backup lobby-1")
	other := types.NamespacedName{Namespace: "others", Name: "lobby"}
	if end, holder := table.Start(other); holder != "" {
		t.Errorf("the Server of that name in another namespace waits for %q", holder)
	} else {
		end()
	}
	table.Release(lobby, "Backup lobby-1")
	if len(said.released)+len(said.denied) != 0 || len(table.held)+len(table.starting)+len(table.wanted) != 0 {
		t.Errorf("it tells %+v, and remembers %v, %v, %v", said, table.held, table.starting, table.wanted)
	}
}

// Of many that come at once, starts go together, and copies alone.
func TestOfManyAtOnceOneKindWins(t *testing.T) {
	table := New(func(types.NamespacedName) {}, func(types.NamespacedName) {})
	var starts, copies atomic.Int32
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 500 {
				if i%2 == 0 {
					if end, holder := table.Start(lobby); holder == "" {
						starts.Add(1)
						if copies.Load() > 0 {
							t.Error("a game starts while its disks are copied")
						}
						starts.Add(-1)
						end()
					}
					continue
				}
				holder := string(rune('a' + i))
				if table.Hold(lobby, holder) {
					if copies.Add(1) > 1 || starts.Load() > 0 {
						t.Error("disks are copied twice at once, or while the game starts")
					}
					copies.Add(-1)
					table.Release(lobby, holder)
				}
			}
		})
	}
	group.Wait()
	if len(table.held)+len(table.starting) != 0 {
		t.Errorf("what is over is remembered: %v, %v", table.held, table.starting)
	}
}
