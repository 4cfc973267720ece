package disklock

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// passes reports whether a Pod that serves files gets the disks.
func passes(t *Table, at time.Time) bool {
	end, holder := t.StartFiles(lobby, at)
	if holder == "" {
		end()
	}
	return holder == ""
}

func TestFilesAndACopyKeepEachOtherOut(t *testing.T) {
	table, said := newTable()
	end, holder := table.StartFiles(lobby, noon)
	if holder != "" || table.Hold(lobby, "Backup lobby-1") {
		t.Fatal("a Pod that starts doesn't keep a copy out")
	}
	if end(); !table.Hold(lobby, "Backup lobby-1") || passes(table, noon) {
		t.Fatal("a copy doesn't keep a Pod out")
	}
	if table.Wanted(lobby) || len(said.denied) > 0 {
		t.Error("a copy is given up for files")
	}
	if table.Release(lobby, "Backup lobby-1"); !passes(table, noon) {
		t.Error("a copy that has ended keeps a Pod out")
	}
}

// A copy that looks again and again whether the files' Pods are gone gets its turn, whoever connects.
func TestACopyGetsItsTurn(t *testing.T) {
	table, _ := newTable()
	look := func(at time.Time) bool {
		if !table.Hold(lobby, "Backup lobby-1") {
			t.Fatal("it can't look")
		}
		defer table.Release(lobby, "Backup lobby-1")
		return table.WaitForFiles(lobby, at)
	}
	at := noon
	for ; at.Before(noon.Add(patience)); at = at.Add(time.Minute) {
		if look(at) || !passes(table, at) {
			t.Fatalf("the door is closed after %s", at.Sub(noon))
		}
	}
	if !look(at) || passes(table, at) {
		t.Fatal("the door isn't closed after all that time")
	}
	if table.Hold(lobby, "Backup lobby-1"); passes(table, at.Add(time.Hour)) {
		t.Error("somebody comes in while it copies")
	}
	if table.Release(lobby, "Backup lobby-1"); !passes(table, at.Add(time.Second)) {
		t.Error("the door is closed after the copy")
	}
	if look(at.Add(time.Minute)) {
		t.Error("the next copy doesn't wait")
	}
}

// A copy that isn't there any more closes no door.
func TestACopyThatHasGoneForgetsItsTurn(t *testing.T) {
	table, _ := newTable()
	table.WaitForFiles(lobby, noon)
	for at := noon; !at.After(noon.Add(patience)); at = at.Add(time.Minute) {
		table.WaitForFiles(lobby, at)
	}
	if gone := noon.Add(patience + 2*time.Minute); passes(table, gone.Add(-time.Minute-31*time.Second)) || !passes(table, gone) {
		t.Error("the door doesn't open again in time")
	}
	table.WaitForFiles(lobby, noon)
	if table.WaitForFiles(lobby, noon.Add(time.Hour)) {
		t.Error("the time of a copy that has gone counts for the next one")
	}
}
