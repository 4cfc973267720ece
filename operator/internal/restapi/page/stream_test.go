package page_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/operator/internal/restapi/page"
)

// shown is what the tests read of a server in an event.
type shown struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
}

func TestAListIsLive(t *testing.T) {
	w := newWorld(t, page.Options{PageSize: 2})
	w.Put(ready(1, 0))
	w.Put(ready(3, 0))
	l := w.listen("/page/live")
	list := decode[struct{ Servers []shown }](t, l.until("list", ""))
	if len(list.Servers) != 2 || list.Servers[1].ID != 3 {
		t.Errorf("the list begins with %v", list)
	}
	w.Change(3, func(s *page.Server) { s.State = "Draining" })
	if s := decode[shown](t, l.until("server", "Draining")); s.ID != 3 {
		t.Errorf("server %d drains, want 3", s.ID)
	}
	w.Put(ready(2, 0))
	l.until("server", `"id":2`)
	w.Delete(1)
	l.until("gone", `"id":1`)
}

func TestAPageOfAListIsNotToldOfOthers(t *testing.T) {
	w := newWorld(t, page.Options{PageSize: 2})
	for _, id := range []int64{1, 3, 5, 7, 9} {
		w.Put(ready(id, 0))
	}
	middle, found := w.listen("/page/live?after=3"), w.listen("/page/live?text=arena&after=7")
	middle.until("list", "")
	found.until("list", "")
	for _, id := range []int64{1, 4, 8, 10} {
		w.Put(ready(id, 9))
	}
	w.Delete(1)
	w.Put(ready(6, 9))
	// Of those that changed only 6 belongs between 5 and 7.
	if e := middle.until("server", ""); !strings.Contains(e.data, `"id":6`) {
		t.Errorf("told of %s", e.data)
	}
	// What was looked for has what was found.
	w.Put(ready(9, 9))
	if e := found.until("server", ""); !strings.Contains(e.data, `"id":9`) {
		t.Errorf("told of %s", e.data)
	}
}

func TestAServersPageIsLive(t *testing.T) {
	w := newWorld(t, page.Options{LogLines: 50})
	w.Put(ready(1, 0))
	w.Put(ready(2, 0))
	w.Log(1, "first")
	w.Happen(1, page.Event{ID: "e1", When: time.Now(), Reason: "Old", Message: "past"})
	l := w.listen("/page/servers/1/live")
	l.until("server", `"state":"Ready"`)
	l.until("event", "past")
	l.until("log", "first")
	w.Log(1, evil, "\x1b[1mbold")
	e := l.until("log", "bold")
	if strings.Contains(e.data, "<") || strings.Contains(e.data, "001b") {
		t.Errorf("the log has %s", e.data)
	}
	w.Happen(1, page.Event{ID: "e1", When: time.Now(), Reason: "Old", Message: "past", Count: 2})
	l.until("event", "past (2 times)")
	w.Change(2, func(s *page.Server) { s.State = "Draining" })
	w.Change(1, func(s *page.Server) { s.State = "Allocated" })
	if s := decode[shown](t, l.until("server", "")); s.ID != 1 {
		t.Errorf("told of server %d", s.ID)
	}
	w.Delete(1)
	l.until("gone", `"id":1`)
	l.over()
}

func TestAChattyGameCostsABrowserAFewLines(t *testing.T) {
	w := newWorld(t, page.Options{LogLines: 50})
	w.Put(ready(1, 0))
	l := w.listen("/page/servers/1/live")
	l.until("log", `"fresh":true`)
	lines := make([]string, 3000)
	for i := range lines {
		lines[i] = fmt.Sprintf("line %d", i)
	}
	w.Log(1, lines...)
	got, lost := 0, 0
	for got+lost < len(lines) {
		m := decode[struct {
			Lines []string
			Lost  int
		}](t, l.until("log", ""))
		if len(m.Lines) > 50 {
			t.Errorf("%d lines at once", len(m.Lines))
		}
		got, lost = got+len(m.Lines), lost+m.Lost
	}
	if lost == 0 {
		t.Error("no line was left out")
	}
}

func TestALogBeginsWhenTheServerWakes(t *testing.T) {
	w := newWorld(t, page.Options{})
	s := ready(1, 0)
	s.State, s.Asleep = "Asleep", true
	w.Put(s)
	l := w.listen("/page/servers/1/live")
	l.until("log", "There is no log: the server does not run.")
	w.Put(ready(1, 0))
	l.until("log", `"fresh":true`)
	w.Log(1, "good morning")
	l.until("log", "good morning")
}

func TestALogBeginsAnewWithTheNextGame(t *testing.T) {
	w := newWorld(t, page.Options{})
	w.Put(ready(1, 0))
	l := w.listen("/page/servers/1/live")
	w.Log(1, "the first game")
	l.until("log", "the first game")
	w.post("/page/servers/1/stop", nil).has(t, http.StatusSeeOther)
	l.until("server", "Stopped")
	w.post("/page/servers/1/start", nil).has(t, http.StatusSeeOther)
	w.Log(1, "the next game")
	l.until("log", "the next game")
}

func TestALogGoesOnAfterItsConnectionBroke(t *testing.T) {
	w := newWorld(t, page.Options{})
	w.Put(ready(1, 0))
	l := w.listen("/page/servers/1/live")
	w.Log(1, "before")
	l.until("log", "before")
	w.Break(1)
	w.Log(1, "after")
	// It begins anew, with its last lines: all at once, or one after the other.
	if e := l.until("log", `"fresh":true`); !strings.Contains(e.data, "after") {
		l.until("log", "after")
	}
}

func TestACallersStreamsAreBounded(t *testing.T) {
	w := newWorld(t, page.Options{CallerStreams: 2, Streams: 3})
	w.Put(ready(1, 0))
	first := w.listen("/page/live")
	first.until("list", "")
	w.listen("/page/servers/1/live").until("server", "")
	w.get("/page/live").has(t, http.StatusTooManyRequests, "You have 2 pages open that update by themselves, and may have no more.")
	w.listen("/page/live", bearer("other-token")).until("list", "")
	w.ask(http.MethodGet, "/page/live", nil, bearer("other-token")).has(t, http.StatusTooManyRequests, "Too many people")
	// One that has gone makes room.
	first.end()
	first.over()
	deadline := time.Now().Add(streamTimeout)
	for w.room() != http.StatusOK {
		if time.Now().After(deadline) {
			t.Fatal("a stream that ended makes no room")
		}
	}
}

// room is the status of a stream of alice's that is given up at once.
func (w *world) room() int {
	response := w.open(w.t.Context(), http.MethodGet, "/page/live", nil, cookie("good-token"))
	response.Body.Close()
	return response.StatusCode
}

func TestAStreamEndsSoThatItsTokenIsSeenAgain(t *testing.T) {
	w := newWorld(t, page.Options{StreamFor: 50 * time.Millisecond})
	w.Put(ready(1, 0))
	for _, path := range []string{"/page/live", "/page/servers/1/live"} {
		w.listen(path).over()
	}
	w.Forget("good-token")
	w.get("/page/live").has(t, http.StatusUnauthorized, "not one that this cluster made")
}

func TestAnIdleStreamShowsThatItLives(t *testing.T) {
	w := newWorld(t, page.Options{Heartbeat: 10 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), streamTimeout)
	defer cancel()
	response := w.open(ctx, http.MethodGet, "/page/live", nil, cookie("good-token"))
	defer response.Body.Close()
	read := make([]byte, 1<<10)
	var all strings.Builder
	for !strings.Contains(all.String(), "\n: \n") {
		n, err := response.Body.Read(read)
		all.Write(read[:n])
		if err != nil {
			t.Fatalf("after %q: %v", all.String(), err)
		}
	}
}
