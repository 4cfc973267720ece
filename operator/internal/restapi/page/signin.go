package page

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

const (
	cookieName = "dormouse-token"
	// maxToken leaves room for the cookie's name and attributes: browsers keep 4096 bytes.
	maxToken = 3800
)

// errSignedOut means that a request has no token at all.
var errSignedOut = errors.New("not signed in")

// tokenOf is the token of a request: that of a proxy in front of the page comes first, so that
// nobody is somebody else there by a cookie that was left.
func tokenOf(r *http.Request) (token string, proxied bool) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if strings.EqualFold(scheme, "Bearer") {
			return strings.TrimSpace(token), true
		}
	}
	if cookie, err := r.Cookie(cookieName); err == nil {
		return cookie.Value, false
	}
	return "", false
}

// callerOf asks who a request's token is.
func (p *page) callerOf(r *http.Request) (*signedIn, error) {
	token, proxied := tokenOf(r)
	if token == "" {
		return nil, errSignedOut
	}
	who, err := p.servers.SignIn(r.Context(), token)
	if err != nil {
		return nil, err
	}
	return &signedIn{Request: r, who: who, proxied: proxied}, nil
}

// askToSignIn answers who has no good token: with the form, or with what is wrong where no form
// helps.
func (p *page) askToSignIn(w http.ResponseWriter, r *http.Request, err error) {
	next := "/"
	if r.Method == http.MethodGet {
		next = localPath(r.URL.RequestURI())
	}
	if errors.Is(err, errSignedOut) {
		to := "/signin"
		if next != "/" {
			to += "?" + url.Values{"next": {next}}.Encode()
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	refusal := p.refusalOf(r, err)
	if _, proxied := tokenOf(r); proxied || refusal.Status != http.StatusUnauthorized {
		p.fail(w, r, nil, refusal)
		return
	}
	http.SetCookie(w, p.cookie(r, ""))
	p.render(w, r, http.StatusUnauthorized, "signin", p.signInView("", "You are signed out: "+lowerFirst(refusal.Sentence), next))
}

// cookie keeps a token as long as the browser runs, or takes it away.
func (p *page) cookie(r *http.Request, token string) *http.Cookie {
	c := &http.Cookie{ //nolint:gosec // it is Secure where the page is served by TLS
		Name: cookieName, Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: p.options.Secure || r.TLS != nil,
	}
	if token == "" {
		c.MaxAge = -1
	}
	return c
}

type signInView struct {
	frame
	// Next is where to go then.
	Next string
	// Audience is whom a token has to be for.
	Audience string
}

func (p *page) signInView(status, alert, next string) *signInView {
	return &signInView{frame: frame{Title: "Sign in", Status: status, Alert: alert}, Next: next, Audience: p.options.Audience}
}

func (p *page) showSignIn(w http.ResponseWriter, r *http.Request) {
	p.render(w, r, http.StatusOK, "signin", p.signInView(doneSentence(r), "", localPath(r.URL.Query().Get("next"))))
}

func (p *page) signIn(w http.ResponseWriter, r *http.Request) {
	if err := parseForm(r); err != nil {
		p.fail(w, r, nil, p.refusalOf(r, err))
		return
	}
	next := localPath(r.PostForm.Get("next"))
	token := strings.TrimSpace(r.PostForm.Get("token"))
	ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
	defer cancel()
	if err := p.checkToken(ctx, token); err != nil {
		refusal := p.refusalOf(r, err)
		p.render(w, r, refusal.Status, "signin", p.signInView("", refusal.Sentence, next))
		return
	}
	http.SetCookie(w, p.cookie(r, token))
	http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // localPath lets no other site through
}

// checkToken refuses what a cookie can't keep, and what Servers doesn't take.
func (p *page) checkToken(ctx context.Context, token string) error {
	switch {
	case token == "":
		return Refuse(http.StatusBadRequest, "Paste a token.")
	case len(token) > maxToken:
		return Refuse(http.StatusBadRequest, "The token is longer than a cookie may be. Ask for one with fewer claims, or use a proxy that signs you in.")
	case strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`",;\`, c) }):
		return Refuse(http.StatusBadRequest, "This is no token: it has characters that no token has. Paste the token alone, on one line.")
	}
	_, err := p.servers.SignIn(ctx, token)
	return err
}

func (p *page) signOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, p.cookie(r, ""))
	http.Redirect(w, r, "/signin?done=signout", http.StatusSeeOther)
}

// localPath is a path of this page, or "/" where it could be another site's.
func localPath(path string) string {
	u, err := url.Parse(path)
	if err != nil || u.IsAbs() || u.Host != "" || strings.ContainsAny(path, "\\\r\n\t") ||
		(u.Path != "/" && !strings.HasPrefix(u.Path, "/page/")) {
		return "/"
	}
	return u.RequestURI()
}

// parseForm reads a form. What is too large is refused with a sentence.
func parseForm(r *http.Request) error {
	err := r.ParseForm()
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return Refuse(http.StatusRequestEntityTooLarge, "The form is larger than %d bytes.", tooLarge.Limit)
	}
	if err != nil {
		return Refuse(http.StatusBadRequest, "The form can't be read.")
	}
	return nil
}
