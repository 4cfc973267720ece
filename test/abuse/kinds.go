package abuse

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"dormouse.dev/dormouse/internal/informerapi"
)

// Kind is one way to abuse the wake endpoint.
type Kind struct {
	Name string
	// Code is the HTTP status that refuses it.
	Code int
	// Unread reports whether the server refuses it before the wake endpoint sees it.
	Unread bool
	// request is the i-th of its kind, as bytes on a connection.
	request func(i int) []byte
}

// Kinds are all of them. Distinct is how many different tokens of strangers there
// are, each as good as can be but for whose it is.
func Kinds(t Tokens, distinct int) ([]Kind, error) {
	f, err := newForge(t)
	if err != nil {
		return nil, err
	}
	forged, err := f.forged(t.Good)
	if err != nil {
		return nil, err
	}
	strangers, err := f.strangers(distinct)
	if err != nil {
		return nil, err
	}
	forged["no token"] = ""
	forged["a token for another audience"] = t.OtherAudience
	forged["another account's token"] = t.OtherAccount
	forged["a token of no pod"] = t.NoPod

	const body = `{"count":1,"svc":"lobby","namespace":"games"}`
	var kinds []Kind
	for _, name := range slices.Sorted(maps.Keys(forged)) {
		bytes := Call(forged[name], body)
		kinds = append(kinds, Kind{Name: name, Code: http.StatusUnauthorized, request: func(int) []byte { return bytes }})
	}
	kinds = append(
		kinds,
		Kind{Name: "a random token", Code: http.StatusUnauthorized, request: func(i int) []byte { return Call(fmt.Sprintf("%d.%d.%d", i, i, i), body) }},
		Kind{Name: "a stranger's token", Code: http.StatusUnauthorized, request: func(i int) []byte { return Call(strangers[i%len(strangers)], body) }},
		Kind{Name: "an unknown service", Code: http.StatusNotFound, request: func(i int) []byte {
			return Call(t.Good, fmt.Sprintf(`{"count":1,"svc":"unknown-%d","namespace":"games-%d"}`, i, i))
		}},
		// A newer resolver may say more: what this operator doesn't know does nothing.
		Kind{Name: "an unknown service, and more fields", Code: http.StatusNotFound, request: func(i int) []byte {
			return Call(t.Good, fmt.Sprintf(`{"count":1,"replicas":100,"svc":"unknown-%d","namespace":"games-%d"}`, i, i))
		}},
	)
	for name, body := range map[string]string{
		"no body":                 "",
		"a body that is no JSON":  "wake!",
		"a body that is cut":      body[:len(body)-4],
		"a field of another type": strings.Replace(body, `"games"`, `["games"]`, 1),
		"a count out of bounds":   strings.Replace(body, "1", "1000001", 1),
		"a service that's a path": strings.Replace(body, "lobby", "../lobby", 1),
		"a deeply nested body":    strings.Repeat("[", 4000),
	} {
		bytes := Call(t.Good, body)
		kinds = append(kinds, Kind{Name: name, Code: http.StatusBadRequest, request: func(int) []byte { return bytes }})
	}
	large := strings.Repeat(" ", 8<<10)
	for name, k := range map[string]struct {
		code  int
		bytes []byte
	}{
		"a large body":                   {http.StatusRequestEntityTooLarge, Call(t.Good, body+large)},
		"a large body of a stranger":     {http.StatusRequestEntityTooLarge, Call("", body+large)},
		"a body that is to be 1 GiB":     {http.StatusRequestEntityTooLarge, raw(http.MethodPost, informerapi.WakePath, t.Good, "Content-Length: 1073741824\r\n", body)},
		"a large body in chunks":         {http.StatusRequestEntityTooLarge, raw(http.MethodPost, informerapi.WakePath, t.Good, "Transfer-Encoding: chunked\r\n", "2000\r\n"+large+"\r\n0\r\n\r\n")},
		"a large token":                  {http.StatusRequestHeaderFieldsTooLarge, Call(strings.Repeat("a", 8<<10), body)},
		"another method":                 {http.StatusMethodNotAllowed, raw(http.MethodGet, informerapi.WakePath, t.Good, "", "")},
		"another path":                   {http.StatusNotFound, raw(http.MethodGet, "/metrics/../informer", t.Good, "", "")},
		"something that is no HTTP call": {http.StatusBadRequest, []byte("\x16\x03\x01\x02\x00 hello\r\n\r\n")},
	} {
		kinds = append(kinds, Kind{Name: name, Code: k.code, Unread: true, request: func(int) []byte { return k.bytes }})
	}
	return kinds, nil
}

// Call is a wake call as bytes on a connection.
func Call(token, body string) []byte {
	return raw(http.MethodPost, informerapi.WakePath, token, fmt.Sprintf("Content-Length: %d\r\n", len(body)), body)
}

func raw(method, path, token, framing, body string) []byte {
	if token != "" {
		token = "Authorization: Bearer " + token + "\r\n"
	}
	return []byte(method + " " + path + " HTTP/1.1\r\nHost: dormouse-operator\r\n" + token + framing + "\r\n" + body)
}
