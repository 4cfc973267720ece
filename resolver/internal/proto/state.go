package proto

import (
	"cmp"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"dormouse.dev/dormouse/internal/maintenance"
)

// Phase is the service's state as a client finds it.
type Phase int

const (
	// Asleep lasts until a client wants the server.
	Asleep Phase = iota
	// Waking lasts until the server is up.
	Waking
	// Up means that a server is there to answer for itself. A client that was answered before
	// may still ask.
	Up
)

// Texts of a service that has none of its own.
const (
	defaultAsleep = "Asleep. Join to wake it up."
	defaultWaking = "Waking up, " + Elapsed + " so far."
)

// Elapsed stands in a text for how long the service has been waking.
const Elapsed = "{elapsed}"

// Service is the state of one port's service. It is never changed: a new version takes its
// place.
type Service struct {
	// ID tells services apart, and is the same on every resolver.
	ID uint64
	// Name is what the Service is called.
	Name  string
	Phase Phase
	// Since is when the phase began; zero where that isn't known.
	Since   time.Time
	Answers Answers
	// Probes are HTTP requests that are answered in the server's place.
	Probes []Probe
	// Page is what a person is shown while the service wakes; nil: people wait like others.
	Page *Page
	// Players are the players who may wake it; nil: everybody.
	Players *Players
	// DownUntil is until when the service is kept asleep for maintenance; zero: it isn't.
	DownUntil time.Time
}

// Answers are what is answered in the server's place. What is empty or zero is not known, and
// each protocol has a default for it.
type Answers struct {
	// Asleep and Waking are the message of the day, or the server's name where
	// the protocol has none; Elapsed in Waking becomes a time such as 1m5s.
	Asleep, Waking string
	// Rejoin is the message to a player who was held for too long.
	Rejoin string
	// Version is the name of the server's version, and Protocol its number.
	Version  string
	Protocol int32
	// MaxPlayers is how many may play.
	MaxPlayers int32
	// Favicon is a data URI of a PNG image.
	Favicon string
	// Map, Game and Folder are the names of the level, the game and its directory.
	Map, Game, Folder string
	// AppID is the game's number on Steam.
	AppID uint64
}

// Page is what a person is shown while a service wakes. Title and Message are empty where the
// defaults are to be used; Elapsed in Message becomes a time such as 1m5s.
type Page struct {
	Title, Message string
	// Takes is how long a wake usually takes; 0 where that isn't known.
	Takes time.Duration
}

// Probe is an HTTP request, and its answer.
type Probe struct {
	Method string
	// One of these is set, and says which path fits: this one; it and those below it; those that
	// the expression fits.
	Path, PathPrefix string
	PathRegex        *regexp.Regexp
	Headers          []HeaderMatch
	Query            []QueryMatch
	Status           int
	Fields           []Header
	Body             string
}

// HeaderMatch is a header that a request must have: with the value, with one that begins with
// it, or with one that the expression fits.
type HeaderMatch struct {
	Name, Value string
	Prefix      bool
	Regex       *regexp.Regexp
}

// QueryMatch is a parameter that a request's query must have: with the value, or with one that
// the expression fits.
type QueryMatch struct {
	Name, Value string
	Regex       *regexp.Regexp
}

// Header is a header of an answer.
type Header struct{ Name, Value string }

// maxLearned bounds what is kept of a text learnt from a server, in bytes.
const maxLearned = 64

// Or fills in what is not known from what was learnt from a server. Texts are shortened.
func (a Answers) Or(learnt Answers) Answers {
	for _, f := range []struct {
		own    *string
		learnt string
	}{{&a.Version, learnt.Version}, {&a.Map, learnt.Map}, {&a.Game, learnt.Game}, {&a.Folder, learnt.Folder}} {
		*f.own = orElse(*f.own, string(AppendText(nil, f.learnt, maxLearned)))
	}
	a.Favicon = orElse(a.Favicon, learnt.Favicon)
	a.Protocol, a.MaxPlayers, a.AppID = cmp.Or(a.Protocol, learnt.Protocol), cmp.Or(a.MaxPlayers, learnt.MaxPlayers), cmp.Or(a.AppID, learnt.AppID)
	return a
}

// Client describes the client that is being classified, its service, and the time.
type Client struct {
	Service *Service
	// Source is a datagram's source, which may be forged. It is invalid for TCP.
	Source netip.AddrPort
	Now    time.Time
	// Scratch is an empty buffer with room for an answer, to be appended to; nil where there is
	// none.
	Scratch []byte
}

// Down reports whether the service is kept asleep, so that nobody can wake it.
func (c Client) Down() bool { return c.Now.Before(c.Service.DownUntil) }

// DownText continues a sentence about a service that is kept asleep, such as "The server is".
func (c Client) DownText() string {
	switch {
	case !c.Down():
		return "down for maintenance"
	case c.Service.DownUntil.Equal(maintenance.Stopped):
		return "stopped"
	}
	return "down for maintenance until " + c.Service.DownUntil.UTC().Format("2006-01-02 15:04 UTC")
}

// AppendMessage writes the message for the service's phase, in at most limit bytes.
func (c Client) AppendMessage(to []byte, limit int) []byte {
	start, s := len(to), c.Service
	switch {
	case s.Phase == Asleep && c.Down():
		return cut(append(append(append(to, 'D'), c.DownText()[1:]...), '.'), start, limit)
	case s.Phase == Asleep:
		return cut(append(to, orElse(s.Answers.Asleep, defaultAsleep)...), start, limit)
	}
	return c.AppendWaking(to, orElse(s.Answers.Waking, defaultWaking), limit)
}

// AppendWaking writes a text about a service that wakes, in at most limit bytes.
func (c Client) AppendWaking(to []byte, text string, limit int) []byte {
	start := len(to)
	before, after, found := strings.Cut(text, Elapsed)
	to = append(to, before...)
	if found {
		to = append(c.appendElapsed(to), after...)
	}
	return cut(to, start, limit)
}

// Elapsed is how long the service has been waking; 0 where that isn't known.
func (c Client) Elapsed() time.Duration {
	if c.Service.Phase != Waking || c.Service.Since.IsZero() {
		return 0
	}
	return max(0, c.Now.Sub(c.Service.Since))
}

// appendElapsed writes how long the service has been waking, in whole seconds.
func (c Client) appendElapsed(to []byte) []byte {
	seconds := int64(c.Elapsed() / time.Second)
	if minutes := seconds / 60; minutes > 0 {
		to = append(strconv.AppendInt(to, minutes, 10), 'm')
	}
	return append(strconv.AppendInt(to, seconds%60, 10), 's')
}

// AppendText writes a text, in at most limit bytes.
func AppendText(to []byte, text string, limit int) []byte {
	return cut(append(to, text[:min(len(text), max(limit, 0)+utf8.UTFMax)]...), len(to), limit)
}

// cut shortens what follows start to limit bytes, between characters.
func cut(b []byte, start, limit int) []byte {
	if len(b)-start <= limit {
		return b
	}
	end := start + max(limit, 0)
	for end > start && !utf8.RuneStart(b[end]) {
		end--
	}
	return b[:end]
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
