package page

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// Bounds of what a server's page has.
const (
	maxEvents = 50
	maxWakes  = 10
)

type serverView struct {
	frame
	Server view
	Live   string
	// Lines and Events are there, or say why not.
	Lines     []string
	LogNote   string
	MaxLines  int
	Events    []eventView
	EventNote string
	History   historyView
}

// Row is the server with where its forms come back to.
func (v *serverView) Row() rowView { return rowView{view: v.Server, Back: v.Back} }

// BlankEvent is what the script copies for an event that comes.
func (*serverView) BlankEvent() eventView { return eventView{} }

// historyView is what is past: wakes and players.
type historyView struct {
	Wakes       []wakeView
	WakeNote    string
	Plot        *plot
	PlayersNote string
	// Path is where the script gets it anew.
	Path string
}

func idOf(r *http.Request) (int64, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return 0, Refuse(http.StatusNotFound, "There is no such server: its number has to be a positive whole number.")
	}
	return id, nil
}

func (p *page) showServer(w http.ResponseWriter, r *signedIn) error {
	return p.renderServer(w, r, nil)
}

// renderServer shows a server, with what didn't work where there is something.
func (p *page) renderServer(w http.ResponseWriter, r *signedIn, refusal *Refusal) error {
	id, err := idOf(r.Request)
	if err != nil {
		return err
	}
	s, err := p.servers.Get(r.Context(), r.who, id)
	if err != nil {
		return err
	}
	v := &serverView{Server: viewOf(&s), Live: serverPath(id) + "/live", MaxLines: p.options.LogLines}
	v.frame = frameOf(r, v.Server.Name)
	if v.Back == "" {
		v.Back = serverPath(id)
	}
	status := http.StatusOK
	if refusal != nil {
		v.Status, v.Alert, status = "", refusal.Sentence, refusal.Status
	}
	if v.Lines, err = p.lastLines(r, id); err != nil {
		v.LogNote = p.refusalOf(r.Request, err).Sentence
	}
	events, err := p.servers.Events(r.Context(), r.who, id)
	if err != nil {
		v.EventNote = p.refusalOf(r.Request, err).Sentence
	}
	for i := range events[:min(len(events), maxEvents)] {
		v.Events = append(v.Events, eventViewOf(&events[i]))
	}
	v.History = p.historyOf(r, id)
	p.render(w, r.Request, status, "server", v)
	return nil
}

// lastLines are the log's last lines as they are now.
func (p *page) lastLines(r *signedIn, id int64) ([]string, error) {
	ctx, cancel := context.WithTimeout(r.Context(), logsWithin)
	defer cancel()
	log, err := p.servers.Logs(ctx, r.who, id, p.options.LogLines, false)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	var lines []string
	in := bufio.NewReader(log)
	for len(lines) < p.options.LogLines {
		line, err := readLine(in)
		if err != nil {
			break
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func (p *page) historyOf(r *signedIn, id int64) historyView {
	h := historyView{Path: serverPath(id) + "/history"}
	wakes, err := p.servers.Wakes(r.Context(), r.who, id)
	if err != nil {
		h.WakeNote = p.refusalOf(r.Request, err).Sentence
	}
	h.Wakes = wakeViews(wakes[:min(len(wakes), maxWakes)])
	samples, err := p.servers.Players(r.Context(), r.who, id)
	if err != nil {
		h.PlayersNote = p.refusalOf(r.Request, err).Sentence
	} else {
		h.Plot = newPlot(samples, p.now())
	}
	return h
}

// showHistory is the part of a server's page that the script gets anew after a wake.
func (p *page) showHistory(w http.ResponseWriter, r *signedIn) error {
	id, err := idOf(r.Request)
	if err != nil {
		return err
	}
	if _, err := p.servers.Get(r.Context(), r.who, id); err != nil {
		return err
	}
	h := p.historyOf(r, id)
	p.render(w, r.Request, http.StatusOK, "history", &h)
	return nil
}

// act does what a button of a server is for, and goes back to the page that has it. What is
// refused is shown on the server's page.
func (p *page) act(w http.ResponseWriter, r *signedIn) error {
	if err := parseForm(r.Request); err != nil {
		return err
	}
	id, err := idOf(r.Request)
	if err != nil {
		return err
	}
	word, err := p.do(r, id, r.PathValue("action"))
	if err != nil {
		refusal := p.refusalOf(r.Request, err)
		if refusal.Status == http.StatusNotFound {
			return refusal
		}
		if err := p.renderServer(w, r, refusal); err != nil {
			return errors.Join(refusal, err)
		}
		return nil
	}
	back := localPath(r.PostForm.Get("back"))
	http.Redirect(w, r.Request, withDone(back, word), http.StatusSeeOther) //nolint:gosec // localPath lets no other site through
	return nil
}

// do does it, and returns the word for what was done.
func (p *page) do(r *signedIn, id int64, action string) (word string, err error) {
	ctx := r.Context()
	switch action {
	case "start":
		err = p.servers.Start(ctx, r.who, id)
	case "stop":
		err = p.servers.Stop(ctx, r.who, id, false)
	case "forcestop":
		err = p.servers.Stop(ctx, r.who, id, true)
	case "wake":
		err = p.servers.Wake(ctx, r.who, id)
	case "keepawake":
		hours, parseErr := strconv.Atoi(r.PostForm.Get("hours"))
		if parseErr != nil || hours < 0 || hours > 168 {
			return "", Refuse(http.StatusBadRequest, "A server can be kept awake for 0 to 168 hours.")
		}
		if hours == 0 {
			action = "sleepy"
		}
		err = p.servers.KeepAwake(ctx, r.who, id, time.Duration(hours)*time.Hour)
	default:
		return "", Refuse(http.StatusNotFound, "There is no such page.")
	}
	return action, err
}
