// Package gamecalls takes what a game's process says to the sidecar of its Server, which knows the
// Server's code and does what was said. The API itself knows no code, and decides nothing.
//
// A code says whose it is, and only that Server's sidecar is asked about it: at its port, at the
// address in the Server's status. Whoever tries codes keeps no game from its calls: those that a sidecar
// has accepted are limited each by itself, as are calls from the address of the Server's Pod, and they
// go on connections of their own. Others share a limit that is high, for a sidecar checks a code in no
// time.
package gamecalls

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
)

// CallTime bounds a call.
const CallTime = 2 * time.Second

const (
	// callsOfCode is how many calls a second a code may make, and callsAtOnce how many at once.
	callsOfCode, callsAtOnce = 10, 20
	// triesOfServer and triesAtOnce are the defaults of Tries and TriesAtOnce.
	triesOfServer, triesAtOnce = 200, 400
	// triesOfPod and triesOfPodAtOnce are those besides from the address of its Pod.
	triesOfPod, triesOfPodAtOnce = 10, 20
	// mostKept bounds the codes and the Servers that are remembered, acceptedFor and keptFor for how long
	// after the last call.
	mostKept    = 16384
	acceptedFor = 24 * time.Hour
	keptFor     = 10 * time.Minute
	// maxAnswer bounds a sidecar's answer, and maxSentence what is told of it.
	maxAnswer   = 4 << 10
	maxSentence = 500
)

// Calls takes calls to sidecars. Its methods may be called at the same time.
type Calls struct {
	// Cached has the Servers of Namespace in memory.
	Cached    client.Reader
	Namespace string
	// Port is the sidecars'.
	Port int
	// Tries is how many codes a second that aren't known are tried at a Server, and TriesAtOnce how
	// many at once.
	Tries       rate.Limit
	TriesAtOnce int

	// games makes the calls of games, and tries those that may be anybody's.
	games, tries *http.Client
	// codes are the limits of codes that a sidecar has accepted, pods those of calls from a Server's
	// Pod, and servers those of others.
	codes, pods, servers *utilcache.LRUExpireCache
}

// New makes Calls for the Servers of a namespace.
func New(cached client.Reader, namespace string) *Calls {
	return &Calls{
		Cached: cached, Namespace: namespace, Port: wellknown.SidecarPort, Tries: triesOfServer, TriesAtOnce: triesAtOnce,
		codes: utilcache.NewLRUExpireCache(mostKept), pods: utilcache.NewLRUExpireCache(mostKept), servers: utilcache.NewLRUExpireCache(mostKept),
		games: newClient(8), tries: newClient(4),
	}
}

// newClient makes a client of sidecars with so many connections to each.
func newClient(connections int) *http.Client {
	dialer := net.Dialer{Timeout: CallTime}
	return &http.Client{
		// Without a proxy, which would learn codes.
		Transport: &http.Transport{
			DialContext: dialer.DialContext, MaxIdleConns: 2048, MaxIdleConnsPerHost: 2, MaxConnsPerHost: connections,
			IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxAnswer, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// By is who makes a call.
type By struct {
	// Code is what the call shows.
	Code string
	// From is the address that it comes from; none if that isn't known.
	From netip.Addr
}

// Named is whose call it is in its own words; empty where it doesn't say.
type Named struct{ Namespace, Server string }

// Do takes a call with its body to a path of the sidecar.
func (c *Calls) Do(ctx context.Context, by By, named Named, path string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("write a call of a game: %w", err)
	}
	return c.ask(ctx, by, named, http.MethodPost, path, text)
}

// ask finds a call's Server, and takes the call to its sidecar.
func (c *Calls) ask(ctx context.Context, by By, named Named, method, path string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, CallTime)
	defer cancel()
	s, err := c.find(ctx, by.Code, named)
	if err != nil {
		return err
	}
	key := sha256.Sum256([]byte(by.Code))
	with, ok := c.admit(key, s, by.From)
	if !ok {
		return failf(Limited, "too many calls of this server: slow down")
	}
	err = c.forward(ctx, with, s, by.Code, method, path, body)
	if Is(err, Wrong) {
		c.codes.Remove(key)
	} else if accepted(err) {
		limiter, ok := c.codes.Get(key)
		if !ok {
			limiter = rate.NewLimiter(callsOfCode, callsAtOnce)
		}
		c.codes.Add(key, limiter, acceptedFor)
	}
	return err
}

// accepted reports whether a sidecar accepted the code of a call.
func accepted(err error) bool { return err == nil || Is(err, Invalid) || Is(err, Conflict) }

// find finds the Server whose code it is.
func (c *Calls) find(ctx context.Context, code string, named Named) (*v1alpha1.Server, error) {
	namespace, name, ok := gameapi.Server(code)
	switch {
	case !ok:
		return nil, failf(Wrong, "a Server's code is needed: as code in the query, as the header %s, or as a bearer token. Its game has it as %s", gameapi.CodeHeader, gameapi.CodeEnv)
	case named.Server != "" && named.Server != name, named.Namespace != "" && named.Namespace != namespace:
		return nil, failf(Wrong, "the code isn't that of the Server that the call names")
	case namespace != c.Namespace:
		return nil, failf(NotFound, "this API has the Servers of namespace %s alone, and the code is of one in another", c.Namespace)
	}
	s := &v1alpha1.Server{}
	err := c.Cached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read Server %s/%s: %w", namespace, name, err)
	}
	if err != nil || !takesPart(s) {
		return nil, failf(NotFound, "there is no Server %s with the annotation %s", name, wellknown.GameAPIAnnotation)
	}
	return s, nil
}

// takesPart reports whether a Server's game may call.
func takesPart(s *v1alpha1.Server) bool { return s.Annotations[wellknown.GameAPIAnnotation] == "true" }

// admit reports whether another call may be made, and by which client: with a code that is known, or
// else to find out about one.
func (c *Calls) admit(code [sha256.Size]byte, s *v1alpha1.Server, from netip.Addr) (*http.Client, bool) {
	if v, ok := c.codes.Get(code); ok {
		return c.games, v.(*rate.Limiter).Allow()
	}
	server := client.ObjectKeyFromObject(s)
	// A proxy in between has an address of its own, and others may share one with a Pod on its node's
	// network: a game then has its part of what all have.
	if pod, err := netip.ParseAddr(s.Status.PodIP); err == nil && pod.Unmap() == from.Unmap() && allow(c.pods, server, triesOfPod, triesOfPodAtOnce) {
		return c.games, true
	}
	return c.tries, allow(c.servers, server, c.Tries, c.TriesAtOnce)
}

// allow reports whether one more is within a Server's limit.
func allow(limits *utilcache.LRUExpireCache, server client.ObjectKey, perSecond rate.Limit, atOnce int) bool {
	v, ok := limits.Get(server)
	if !ok {
		v = rate.NewLimiter(perSecond, atOnce)
	}
	// Two first calls at once may count as one.
	limits.Add(server, v, keptFor)
	return v.(*rate.Limiter).Allow()
}

// forward makes a call of a sidecar.
func (c *Calls) forward(ctx context.Context, with *http.Client, s *v1alpha1.Server, code, method, path string, body []byte) error {
	ip, err := netip.ParseAddr(s.Status.PodIP)
	if err != nil {
		return failf(Unavailable, "the Server has no Pod with an address now")
	}
	url := "http://" + net.JoinHostPort(ip.String(), strconv.Itoa(c.Port)) + path
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make a call of the sidecar of Server %s: %w", client.ObjectKeyFromObject(s), err)
	}
	request.Header.Set(gameapi.CodeHeader, code)
	request.Header.Set("Content-Type", "application/json")
	// Each call may be made twice, so one on a connection that was just closed is. It isn't sent.
	request.Header["X-Idempotency-Key"] = nil
	response, err := with.Do(request)
	if err != nil {
		return failf(Unavailable, "the Server's sidecar doesn't answer now: send the same again")
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return failf(Unavailable, "the Server's sidecar doesn't answer now: send the same again")
	}
	return meaning(response.StatusCode, answer)
}

// meaning is what a sidecar's answer means.
func meaning(status int, answer []byte) error {
	switch status {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized:
		return failf(Wrong, "the code isn't this Server's: its game has it as %s", gameapi.CodeEnv)
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return failf(Invalid, "%s", sentence(answer))
	case http.StatusConflict:
		return failf(Conflict, "%s", sentence(answer))
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return failf(Unavailable, "the Server's Pod is older than its annotation %s, or its sidecar is older and doesn't take such calls: replace the Pod", wellknown.GameAPIAnnotation)
	}
	return failf(Unavailable, "the Server's sidecar can't take the call now: send the same again")
}

// sentence is the sidecar's own.
func sentence(answer []byte) string {
	var said struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(answer, &said); err != nil || said.Error == "" {
		return "the Server's sidecar refuses this"
	}
	return said.Error[:min(len(said.Error), maxSentence)]
}

// Kind is what kind of error it is.
type Kind int

// Kinds of errors.
const (
	// Wrong is a code that is missing, or isn't the Server's.
	Wrong Kind = iota + 1
	// NotFound is a Server that there isn't.
	NotFound
	// Invalid is a call that can't be made.
	Invalid
	// Conflict is a call that comes too late.
	Conflict
	// Limited is one call too many.
	Limited
	// Unavailable is a sidecar that doesn't answer, or not yet.
	Unavailable
)

// Error is a call that failed. Its text is a sentence for the game's author.
type Error struct {
	Kind    Kind
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Is reports whether an error is of a kind.
func Is(err error, kind Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == kind
}

func failf(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}
