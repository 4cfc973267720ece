package sidecars

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"dormouse.dev/dormouse/internal/reportapi"
)

const (
	// startsEvery is how far apart sidecars of one process start at least.
	startsEvery = 4 * time.Millisecond
	// changesEvery is how often the players of a sidecar change that is told to.
	changesEvery = 10 * time.Second
	// oneIn is how many sidecars there are for one whose players change: 5 %.
	oneIn = 20
	// callTime bounds a call.
	callTime = 2 * reportapi.RenewalTime
	// firstRetry is how long one that failed waits, which doubles up to lastRetry: as a sidecar does.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// player is this process.
type player struct {
	http    *fasthttp.HostClient
	url     string
	out     *json.Encoder
	outLock sync.Mutex
	failed  atomic.Int64
	why     atomic.Value
	running sync.WaitGroup
	// all are the sidecars in the order of their start; only Play's own goroutine uses it.
	all    []*sidecar
	byName map[string]*sidecar
}

// Play does what in says until the context or in ends. The addresses of the operator's replicas are
// separated by commas; the first that takes a connection gets it.
func Play(ctx context.Context, addresses string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first, _, _ := strings.Cut(addresses, ",")
	p := &player{
		url: "http://" + first + reportapi.ReportPath, out: json.NewEncoder(out), byName: map[string]*sidecar{},
		http: &fasthttp.HostClient{Addr: first, Dial: dialer(strings.Split(addresses, ",")), MaxConns: 1 << 16, ReadTimeout: callTime, WriteTimeout: callTime, MaxIdleConnDuration: time.Minute},
	}
	commands := make(chan command)
	go func() {
		defer cancel()
		lines := json.NewDecoder(in)
		for {
			var c command
			if lines.Decode(&c) != nil {
				return
			}
			select {
			case commands <- c:
			case <-ctx.Done():
				return
			}
		}
	}()
	p.running.Go(func() { p.tellFailures(ctx) })
	tick := time.NewTicker(startsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			p.http.CloseIdleConnections()
			return nil // calls that are held end with the process
		case c := <-commands:
			if err := p.obey(ctx, c); err != nil {
				return err
			}
			if c.Play == nil {
				continue
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func (p *player) obey(ctx context.Context, c command) error {
	switch {
	case c.Play != nil:
		s, err := newSidecar(p, *c.Play)
		if err != nil {
			return fmt.Errorf("play the sidecar of %s: %w", c.Play.Server, err)
		}
		p.all, p.byName[s.Server] = append(p.all, s), s
		p.running.Go(func() { s.report(ctx) })
	case c.End != "":
		if s := p.byName[c.End]; s != nil {
			s.end()
			delete(p.byName, c.End)
		}
	case c.Change:
		for i := 0; i < len(p.all); i += oneIn {
			after := time.Duration(i) * changesEvery / time.Duration(len(p.all))
			p.running.Go(func() { p.all[i].change(ctx, after) })
		}
	}
	return nil
}

// dialer connects each time from another loopback address, as sidecars do: the
// operator bounds the connections of one.
func dialer(addresses []string) fasthttp.DialFunc {
	var last atomic.Uint32
	return func(string) (conn net.Conn, err error) {
		n := last.Add(1)
		from := &net.TCPAddr{IP: net.IPv4(127, 1, byte(n>>8), byte(n))}
		for _, address := range addresses {
			if conn, err = (&net.Dialer{LocalAddr: from, Timeout: callTime}).Dial("tcp", address); err == nil {
				break
			}
		}
		return conn, err
	}
}

func (p *player) tell(t notice) {
	p.outLock.Lock()
	defer p.outLock.Unlock()
	_ = p.out.Encode(t) // the other end is gone, and so are we
}

func (p *player) note(err error) {
	p.failed.Add(1)
	p.why.Store(err.Error())
}

func (p *player) tellFailures(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if n := p.failed.Swap(0); n > 0 {
				why, _ := p.why.Load().(string)
				p.tell(notice{Failed: n, Why: why})
			}
		}
	}
}
