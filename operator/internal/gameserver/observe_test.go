package gameserver

import (
	"testing"
	"time"
)

func TestWhatIsMissingIsMissedSinceTheFirstTime(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	a := &absences{first: map[string]time.Time{}}
	a.since("node-1", noon)
	if got := a.since("node-1", noon.Add(time.Minute)); !got.Equal(noon) {
		t.Errorf("missed since %s, want %s", got, noon)
	}
	a.forget("node-1")
	if got := a.since("node-1", noon.Add(time.Hour)); !got.Equal(noon.Add(time.Hour)) {
		t.Errorf("a node that had come back is missed since %s, want since it went again", got)
	}
	a.since("node-2", noon.Add(time.Hour+forgetAfter+time.Second))
	if len(a.first) != 1 {
		t.Errorf("%d nodes are remembered, want the one that was missed within a day", len(a.first))
	}
}
