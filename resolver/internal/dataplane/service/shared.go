// Package service is what TCP and UDP clients of one ElasticService have in common: its route,
// its queue, its ports with the policy by which their clients are classified, what it takes of
// the shared capacity, and its active clients.
//
// It opens no port and knows no client. The packages tcp and udp do; they import this one.
package service

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/query"
	"dormouse.dev/dormouse/resolver/internal/relay"
)

// Defaults of Options.
const (
	DefaultUDPIdle        = 120 * time.Second
	DefaultMaxUDPSessions = 100_000
	DefaultMaxHeldBytes   = 256 << 20
	DefaultTCPHalfClosed  = 5 * time.Minute
)

const (
	// stalledPart is the part of MaxHeldBytes, as a divisor, for bytes that relayed clients and
	// backends have no room for.
	stalledPart = 4
	// spareFiles are left for everything other than clients, their backends, and ports.
	spareFiles = 1024
)

// Options are what a data plane works with.
type Options struct {
	// Host is the address to listen on; empty: all of them.
	Host    string
	Waker   hold.Waker
	Metrics *metrics.Metrics
	Log     logr.Logger
	// UDPIdle is how long a UDP session may be silent; 0: DefaultUDPIdle.
	UDPIdle time.Duration
	// TCPHalfClosed is how long a TCP connection may be silent after one side has ended; 0:
	// DefaultTCPHalfClosed. TCPIdle is the same for any other connection; 0: for ever.
	TCPHalfClosed, TCPIdle time.Duration
	// MaxFiles bounds the file descriptors of the ports and clients of all services; 0: derived
	// from the process's limit.
	MaxFiles int
	// MaxUDPSessions bounds the UDP sessions of all services; 0: DefaultMaxUDPSessions.
	MaxUDPSessions int
	// MaxHeldBytes bounds what is kept for the clients of all services while they have no
	// backend, or no room for what it sends; 0: DefaultMaxHeldBytes.
	MaxHeldBytes int64
	// AccessLog gets a line about each client that ends; nil: there is no log.
	AccessLog *accesslog.Log
	// Protocols are the protocol modules by name.
	Protocols map[v1alpha1.Protocol]proto.Protocol
}

// Shared is what all services share.
type Shared struct {
	Options

	// Context is the life of all clients. Close ends it.
	Context context.Context //nolint:containedctx // see there
	cancel  context.CancelFunc
	// Relays are the relayed TCP clients, which the end of the Context cuts.
	Relays *relay.Group
	// Running counts the goroutines, and the clients that a loop has.
	Running sync.WaitGroup
	// Sessions counts the relayed clients, including those of services that are gone.
	Sessions atomic.Int32
	// files and udpSessions are divided among the services; ports take files, too.
	files, udpSessions *guard.Share
	portFiles          atomic.Int32
	// Held is charged with the bytes that are kept. Services and fronts have shares of it. Stalled
	// is its part for relayed clients, so that clients that don't read leave the rest to those
	// that wait.
	Held, Stalled *conn.Budget
	// asks bounds how many backends are asked to describe themselves at once, and fetches how
	// many are asked clients' questions. QueryTimeout bounds how long each may take.
	asks, fetches chan struct{}
	QueryTimeout  time.Duration
	// quickDials bounds the dials that look for backends more often at first.
	quickDials *rate.Limiter
}

// NewShared makes what services share.
func NewShared(o Options) *Shared {
	if o.UDPIdle == 0 {
		o.UDPIdle = DefaultUDPIdle
	}
	if o.TCPHalfClosed == 0 {
		o.TCPHalfClosed = DefaultTCPHalfClosed
	}
	if o.MaxFiles == 0 {
		o.MaxFiles = maxFiles()
	}
	if o.MaxUDPSessions == 0 {
		o.MaxUDPSessions = DefaultMaxUDPSessions
	}
	if o.MaxHeldBytes == 0 {
		o.MaxHeldBytes = DefaultMaxHeldBytes
	}
	s := &Shared{
		Options: o, Held: conn.NewBudget(o.MaxHeldBytes),
		files: guard.NewShare(o.MaxFiles), udpSessions: guard.NewShare(o.MaxUDPSessions),
		asks: make(chan struct{}, parallelAsks), fetches: make(chan struct{}, parallelFetches), QueryTimeout: query.Timeout,
		quickDials: hold.NewQuickDials(),
	}
	s.Stalled = s.Held.Part(o.MaxHeldBytes / stalledPart)
	s.Context, s.cancel = context.WithCancel(context.Background())
	s.Relays = relay.NewGroup(s.Context)
	o.Metrics.HeldBytes(s.Held.Used, o.MaxHeldBytes)
	return s
}

// Close cuts all clients.
func (s *Shared) Close() { s.cancel() }

// Usage is how much of the shared capacity is taken.
type Usage struct {
	// Files includes PortFiles.
	Files, PortFiles, UDPSessions int
	// HeldBytes includes StalledBytes.
	HeldBytes, StalledBytes int64
}

// Usage is what is taken now.
func (s *Shared) Usage() Usage {
	return Usage{
		Files: s.files.Used(), PortFiles: int(s.portFiles.Load()), UDPSessions: s.udpSessions.Used(),
		HeldBytes: s.Held.Used(), StalledBytes: s.Stalled.Used(),
	}
}

// maxFiles is how many files clients may have open.
func maxFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return spareFiles
	}
	return max(int(min(limit.Cur, math.MaxInt32))-spareFiles, spareFiles) //nolint:gosec // bounded
}
