package page

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Bounds of what is created.
const (
	maxRAMGB  = 1 << 10
	maxDiskGB = 1 << 14
	// longestQuery bounds what is looked for, in bytes.
	longestQuery = 200
)

type listView struct {
	frame
	Servers []view
	Text    string
	Live    string
	Next    string
	First   string
	// Blank is the row that the script copies for a server that comes.
	Blank rowView
}

// rowView is a row with where its forms come back to.
type rowView struct {
	view
	Back string
}

// Rows are the servers, each with where its forms come back to.
func (v *listView) Rows() []rowView {
	rows := make([]rowView, 0, len(v.Servers))
	for _, s := range v.Servers {
		rows = append(rows, rowView{view: s, Back: v.Back})
	}
	return rows
}

// queryOf reads which servers a request is about.
func (p *page) queryOf(r *http.Request) (Query, error) {
	values := r.URL.Query()
	q := Query{Text: strings.TrimSpace(values.Get("text")), After: values.Get("after"), Limit: p.options.PageSize}
	if len(q.Text) > longestQuery || len(q.After) > longestQuery {
		return q, Refuse(http.StatusBadRequest, "What is looked for may have %d characters at most.", longestQuery)
	}
	return q, nil
}

// link is a path with the values that aren't empty.
func link(path string, values url.Values) string {
	for name := range values {
		if values.Get(name) == "" {
			values.Del(name)
		}
	}
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
}

func (p *page) showList(w http.ResponseWriter, r *signedIn) error {
	query, err := p.queryOf(r.Request)
	if err != nil {
		return err
	}
	listing, err := p.servers.List(r.Context(), r.who, query)
	if err != nil {
		return err
	}
	v := &listView{
		frame: frameOf(r, "Servers"), Text: query.Text,
		Live: link("/page/live", url.Values{"text": {query.Text}, "after": {query.After}}),
	}
	v.Blank.Back = v.Back
	for i := range listing.Servers {
		v.Servers = append(v.Servers, viewOf(&listing.Servers[i]))
	}
	if listing.Next != "" {
		v.Next = link("/", url.Values{"text": {query.Text}, "after": {listing.Next}})
	}
	if query.After != "" {
		v.First = link("/", url.Values{"text": {query.Text}})
	}
	p.render(w, r.Request, http.StatusOK, "list", v)
	return nil
}

type createView struct {
	frame
	Games               []string
	ID, Game, RAM, Disk string
	MaxRAM, MaxDisk     int
}

func (p *page) showCreate(w http.ResponseWriter, r *signedIn) error {
	return p.renderCreate(w, r, http.StatusOK, &createView{frame: frameOf(r, "New server"), RAM: "2", Disk: "0"})
}

func (p *page) renderCreate(w http.ResponseWriter, r *signedIn, status int, v *createView) error {
	games, err := p.servers.Games(r.Context(), r.who)
	if err != nil {
		return err
	}
	v.Games, v.MaxRAM, v.MaxDisk = games, maxRAMGB, maxDiskGB
	p.render(w, r.Request, status, "create", v)
	return nil
}

func (p *page) create(w http.ResponseWriter, r *signedIn) error {
	if err := parseForm(r.Request); err != nil {
		return err
	}
	wish, err := wishOf(r.PostForm)
	if err == nil {
		err = p.servers.Create(r.Context(), r.who, wish)
	}
	if err != nil {
		refusal := p.refusalOf(r.Request, err)
		v := &createView{
			frame: frameOf(r, "New server"), ID: r.PostForm.Get("id"), Game: r.PostForm.Get("game"),
			RAM: r.PostForm.Get("ram"), Disk: r.PostForm.Get("disk"),
		}
		v.Alert = refusal.Sentence
		return p.renderCreate(w, r, refusal.Status, v)
	}
	http.Redirect(w, r.Request, withDone(serverPath(wish.ID), "create"), http.StatusSeeOther)
	return nil
}

// wishOf reads the form for a new server.
func wishOf(form url.Values) (Wish, error) {
	wish := Wish{Game: strings.TrimSpace(form.Get("game"))}
	var err error
	if wish.ID, err = strconv.ParseInt(form.Get("id"), 10, 64); err != nil || wish.ID < 1 {
		return wish, Refuse(http.StatusBadRequest, "The server's number has to be a positive whole number.")
	}
	if wish.Game == "" || len(wish.Game) > 253 {
		return wish, Refuse(http.StatusBadRequest, "Say which game the server is to run.")
	}
	if wish.RAMGB, err = strconv.Atoi(form.Get("ram")); err != nil || wish.RAMGB < 1 || wish.RAMGB > maxRAMGB {
		return wish, Refuse(http.StatusBadRequest, "The memory has to be from 1 to %d GB.", maxRAMGB)
	}
	if wish.DiskGB, err = strconv.Atoi(form.Get("disk")); err != nil || wish.DiskGB < 0 || wish.DiskGB > maxDiskGB {
		return wish, Refuse(http.StatusBadRequest, "The disk has to be from 0 to %d GB.", maxDiskGB)
	}
	return wish, nil
}

func serverPath(id int64) string { return "/page/servers/" + strconv.FormatInt(id, 10) }
