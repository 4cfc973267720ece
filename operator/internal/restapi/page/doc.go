// Package page is the page for people that want no kubectl: the servers that a caller may see, and
// one server with its log, its events, where the time of its last wakes went, and a day's players.
//
// It knows nothing of Kubernetes. What it shows and does it has of Servers, with the rights of
// whoever asks. It is made of forms and links, and works without its script; the script adds live
// updates by server-sent events, and asks before it stops anything.
//
// # Paths
//
//	GET  /                           the servers
//	GET  /signin, POST /signin       sign in with a token
//	POST /signout                    sign out
//	     /page/...                   all the rest
//
// # Who asks
//
// A caller is a bearer token. Where a request has an Authorization header it is that one's, which
// an OIDC proxy in front of the page sets; else that of the cookie dormouse-token, which sign-in
// sets. The cookie is HttpOnly and SameSite=Strict, lives as long as the browser, and is Secure
// where the page is served by TLS. Each request asks Servers whether the token is still good, and
// a stream ends after some minutes, so that its browser has to ask again. No token is written to a
// page, a log or an error.
//
// A cookie that comes with a request of the REST API beside the page must not count there: only the
// page's own forms are guarded against other sites.
//
// POSTs of other origins are refused. Names, logs and events are strangers' text: html/template
// escapes them, the script only sets textContent, and the Content-Security-Policy allows neither
// inline scripts nor other hosts.
package page
