package page

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
)

// frame is what all pages have around them.
type frame struct {
	Title string
	// Who is the caller's name, and ShortWho without what all ServiceAccounts' names have. CanSignOut is whether the page's own cookie signs them in.
	Who        string
	ShortWho   string
	CanSignOut bool
	// Status says what was done, and Alert what is wrong.
	Status, Alert string
	// Back is this page, for forms that come back to it.
	Back string
}

func frameOf(r *signedIn, title string) frame {
	return frame{
		Title: title, Who: r.who.Name(), ShortWho: strings.TrimPrefix(r.who.Name(), "system:serviceaccount:"), CanSignOut: !r.proxied, Status: doneSentence(r.Request), Back: backOf(r.Request),
	}
}

// backOf is the path of a page without what was said there.
func backOf(r *http.Request) string {
	if r.Method != http.MethodGet {
		return ""
	}
	query := r.URL.Query()
	query.Del("done")
	if len(query) == 0 {
		return r.URL.Path
	}
	return r.URL.Path + "?" + query.Encode()
}

// done are the sentences about what was asked for, by the word in the URL: a URL can't have the
// page say anything else.
var done = map[string]string{
	"create":    "The server is made.",
	"start":     "The server starts.",
	"stop":      "The server stops once nobody plays there.",
	"forcestop": "The server stops now.",
	"wake":      "The server wakes.",
	"keepawake": "The server stays awake.",
	"sleepy":    "The server may sleep again.",
	"signout":   "You are signed out.",
}

func doneSentence(r *http.Request) string { return done[r.URL.Query().Get("done")] }

// withDone is a page with what was done.
func withDone(path, word string) string {
	if strings.Contains(path, "?") {
		return path + "&done=" + word
	}
	return path + "?done=" + word
}

// render writes a whole page, or the sentence that it can't.
func (p *page) render(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	var body bytes.Buffer
	if err := templates.ExecuteTemplate(&body, name, data); err != nil {
		http.Error(w, p.refusalOf(r, err).Sentence, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	// Who has gone isn't told.
	_, _ = w.Write(body.Bytes())
}

// fail shows what is wrong on a page of its own.
func (p *page) fail(w http.ResponseWriter, r *http.Request, who *signedIn, refusal *Refusal) {
	f := frame{Title: "This did not work"}
	if who != nil {
		f = frameOf(who, f.Title)
		f.Status = ""
	}
	f.Alert = refusal.Sentence
	p.render(w, r, refusal.Status, "error", &f)
}
