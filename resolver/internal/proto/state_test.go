package proto

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheMessageIsOfThePhase(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	since := func(d time.Duration) time.Time { return now.Add(-d) }
	own := Answers{Asleep: "zzz", Waking: "<{elapsed}>"}
	for name, c := range map[string]struct {
		service Service
		limit   int
		want    string
	}{
		"asleep":                       {Service{Answers: own}, 99, "zzz"},
		"waking":                       {Service{Phase: Waking, Since: since(7900 * time.Millisecond), Answers: own}, 99, "<7s>"},
		"waking for long":              {Service{Phase: Waking, Since: since(65 * time.Second), Answers: own}, 99, "<1m5s>"},
		"waking since nobody knows":    {Service{Phase: Waking, Answers: own}, 99, "<0s>"},
		"waking since a clock to come": {Service{Phase: Waking, Since: now.Add(time.Hour), Answers: own}, 99, "<0s>"},
		"up just now":                  {Service{Phase: Up, Answers: own}, 99, "<0s>"},
		"waking without a time":        {Service{Phase: Waking, Answers: Answers{Waking: "soon"}}, 99, "soon"},
		"asleep without words":         {Service{}, 99, "Asleep. Join to wake it up."},
		"waking without words":         {Service{Phase: Waking, Since: since(3 * time.Second)}, 99, "Waking up, 3s so far."},
		"cut":                          {Service{Answers: own}, 2, "zz"},
		"cut between characters":       {Service{Answers: Answers{Asleep: "aü🐭"}}, 6, "aü"},
		"cut to nothing":               {Service{Answers: Answers{Asleep: "🐭"}}, 3, ""},
	} {
		got := Client{Service: &c.service, Now: now}.AppendMessage([]byte("before "), c.limit)
		if string(got) != "before "+c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestTextsAreCutBetweenCharacters(t *testing.T) {
	for limit, want := range map[int]string{-1: "", 0: "", 1: "a", 2: "a", 3: "aü", 6: "aü", 7: "aü🐭", 99: "aü🐭"} {
		if got := AppendText([]byte("x"), "aü🐭", limit); string(got) != "x"+want {
			t.Errorf("at %d: got %q, want %q", limit, got, want)
		}
	}
}

func TestWhatTheSpecSaysComesBeforeWhatAServerTold(t *testing.T) {
	learnt := Answers{
		Asleep: "no", Waking: "no", Rejoin: "no", Version: strings.Repeat("v", 99), Protocol: 2, MaxPlayers: 2, Favicon: "told",
		Map: "told", Game: "told", Folder: "told", AppID: 2,
	}
	own := Answers{Asleep: "own", Version: "own", Protocol: 1, MaxPlayers: 1, Favicon: "own", Map: "own", Game: "own", Folder: "own", AppID: 1}
	if diff := cmp.Diff(own, own.Or(learnt)); diff != "" {
		t.Errorf("all is said (-want +got):\n%s", diff)
	}
	want := learnt
	want.Asleep, want.Waking, want.Rejoin, want.Version = "", "", "", strings.Repeat("v", maxLearned)
	if diff := cmp.Diff(want, Answers{}.Or(learnt)); diff != "" {
		t.Errorf("nothing is said (-want +got):\n%s", diff)
	}
}
