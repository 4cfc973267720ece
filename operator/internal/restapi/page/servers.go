package page

import (
	"context"
	"io"
	"time"
)

// Caller is who asks. It is made by Servers, and given back to it.
type Caller interface {
	// Name is shown to the caller, and is what a caller's streams are counted by: no two callers
	// have the same.
	Name() string
}

// Servers is what the page shows and does. Each call is made with the rights of its caller, and
// may be made by several at once. An error that is a Refusal is shown as it is; another one is
// logged, and the caller sees that something is wrong.
type Servers interface {
	// SignIn tells who shows a token. Each request calls it, also a stranger's: it has to remember
	// what it learnt for a while, and to bound what it asks others. A token that isn't good is a
	// Refusal with status 401.
	SignIn(ctx context.Context, token string) (Caller, error)

	// List returns servers in the order of their IDs.
	List(ctx context.Context, who Caller, query Query) (Listing, error)
	// Get returns one server. One that isn't there, or that the caller may not see, is a Refusal
	// with status 404.
	Get(ctx context.Context, who Caller, id int64) (Server, error)
	// Games are the names that Create takes, at most some hundred. Where there are none the page
	// has the caller write the name.
	Games(ctx context.Context, who Caller) ([]string, error)

	// Create makes a server. The page has checked the bounds of Wish, and no more.
	Create(ctx context.Context, who Caller, wish Wish) error
	// Start has a stopped server run.
	Start(ctx context.Context, who Caller, id int64) error
	// Stop has a server stop: once nobody plays there, or with force at once.
	Stop(ctx context.Context, who Caller, id int64, force bool) error
	// Wake wakes a server that is asleep, as a player would.
	Wake(ctx context.Context, who Caller, id int64) error
	// KeepAwake keeps a server awake for so long from now, and wakes it. Zero ends that.
	KeepAwake(ctx context.Context, who Caller, id int64, howLong time.Duration) error

	// Logs is the game's log: its last lines, and with follow what comes, until ctx ends or the
	// game does. Where there is no log, since the server sleeps, it is a Refusal.
	Logs(ctx context.Context, who Caller, id int64, lines int, follow bool) (io.ReadCloser, error)
	// Events are the last events of a server, the newest first.
	Events(ctx context.Context, who Caller, id int64) ([]Event, error)
	// Wakes are a server's last wakes, the newest first.
	Wakes(ctx context.Context, who Caller, id int64) ([]Wake, error)
	// Players are the samples of the last day, the oldest first.
	Players(ctx context.Context, who Caller, id int64) ([]Sample, error)

	// Watch sends each server of the caller's that changes after the call, as it is then. The
	// channel is closed when ctx ends, and may be when its reader is too slow: the page then begins
	// anew. Nobody reads it after ctx has ended.
	Watch(ctx context.Context, who Caller) (<-chan Change, error)
	// WatchEvents sends each event of a server that comes, or changes, after the call, as Watch does.
	WatchEvents(ctx context.Context, who Caller, id int64) (<-chan Event, error)
}

// Query is which servers to list.
type Query struct {
	// Text, where it isn't empty, is a part of the name, the game or the state, in any case.
	Text string
	// After is the Next of the listing before, and empty for the first.
	After string
	// Limit is how many servers to return at most.
	Limit int
}

// Listing is a part of the servers.
type Listing struct {
	Servers []Server
	// Next is empty where there are no more.
	Next string
}

// Server is what the page shows of a server. What is zero isn't shown.
type Server struct {
	// ID is positive.
	ID int64
	// Name is what people call it.
	Name string
	// Game is what it was made from.
	Game string
	// State is one of a Server's states, such as Ready, or Asleep, Waking or FallingAsleep.
	State string
	// Why says in a sentence why it isn't Ready.
	Why string
	// Running is whether it is to run: a stopped server can be started, and another one stopped.
	Running bool
	// Asleep is whether it sleeps at zero, and can be woken.
	Asleep bool
	// Since is when it fell asleep or woke.
	Since time.Time
	// KeptAwakeUntil is until when it doesn't sleep, by KeepAwake.
	KeptAwakeUntil time.Time
	// Players is how many play there; nil where nobody can tell.
	Players *int
	// Capacity is how many can.
	Capacity int
	// Address is the host that players connect to, asleep or awake.
	Address string
	// Ports are those that they connect to.
	Ports []Port
	// RAM and Disk are what it may use, such as 4 GiB.
	RAM, Disk string
	// Saved is what its sleeps have saved, in money or in time: 1.20 EUR.
	Saved string
	// Created is when it was made.
	Created time.Time
}

// Port is a port that players connect to.
type Port struct {
	Name   string
	Number int
	// Protocol is TCP, UDP or TCPUDP; empty: it isn't shown.
	Protocol string
}

// Wish is a server that somebody wants.
type Wish struct {
	// ID is the server's, positive.
	ID int64
	// Game is a name of Games.
	Game string
	// RAMGB and DiskGB are gigabytes. A disk of zero is the game's own default.
	RAMGB, DiskGB int
}

// Event is something that happened to a server.
type Event struct {
	// ID is the event's own: one that comes again, with a higher Count, has the same.
	ID      string
	When    time.Time
	Warning bool
	Reason  string
	Message string
	// Count is how often it happened.
	Count int
}

// Wake is a wake from zero.
type Wake struct {
	// Asked is when the first player asked, or somebody else.
	Asked time.Time
	// Took is how long it was until players went to the server.
	Took time.Duration
	// Message says where the time went in a sentence.
	Message string
	// Stages follow each other. Their sum is Took.
	Stages []Stage
}

// Stage is a part of a wake.
type Stage struct {
	// Name says what came to its end: scheduled, started, up, handed over.
	Name string
	Took time.Duration
}

// Sample is how many played from a time on, until that of the next sample.
type Sample struct {
	At      time.Time
	Players int
	// Asleep is whether the server was asleep then.
	Asleep bool
}

// Change is a server that changed.
type Change struct {
	Server Server
	// Gone is whether it isn't there any more. Then only its ID counts.
	Gone bool
}
