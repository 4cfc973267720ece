package main

import (
	"bufio"
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

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

const (
	// startsEvery is how far apart sidecars of one process start.
	startsEvery = 4 * time.Millisecond
	// changesEvery is how often the players of a sidecar change that is told to.
	changesEvery = 10 * time.Second
	// oneIn is how many sidecars there are for one whose players change: 5 %.
	oneIn = 20
	// callTime bounds a call, and retryAfter is how long one that failed waits.
	callTime   = 2 * reportapi.HoldTime
	retryAfter = time.Second
	// changeCommand makes players change.
	changeCommand = "change"
)

// notice is what a playing process tells the other, a line each.
type notice struct {
	// Drained is the name of a Server whose sidecar was told to drain, At when, in
	// nanoseconds since 1970.
	Drained string `json:"drained,omitempty"`
	At      int64  `json:"at,omitempty"`
	// Failed counts the calls that failed in the last second, and Why is one's reason.
	Failed int64  `json:"failed,omitempty"`
	Why    string `json:"why,omitempty"`
}

// sidecar is one that is played.
type sidecar struct {
	sidecarOf
	player *player

	mu       sync.Mutex
	sequence uint64
	players  int32
	drained  bool
}

// player is this process.
type player struct {
	http    *fasthttp.HostClient
	url     string
	out     *json.Encoder
	outLock sync.Mutex
	failed  atomic.Int64
	why     atomic.Value
}

// play plays the sidecars that in tells of, a line each and an empty one after the
// last, until the context or in ends. A line after that is a command.
func play(ctx context.Context, address string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &player{
		url: "http://" + address + reportapi.ReportPath, out: json.NewEncoder(out),
		http: &fasthttp.HostClient{Addr: address, Dial: dialer(), MaxConns: 1 << 16, ReadTimeout: callTime, WriteTimeout: callTime, MaxIdleConnDuration: time.Minute},
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<10)
	var all []*sidecar
	for lines.Scan() && lines.Text() != "" {
		s := &sidecar{player: p, players: 1}
		if err := json.Unmarshal(lines.Bytes(), &s.sidecarOf); err != nil {
			return fmt.Errorf("read a sidecar: %w", err)
		}
		all = append(all, s)
	}
	changing := make(chan struct{})
	go func() {
		defer cancel()
		for lines.Scan() {
			if strings.TrimSpace(lines.Text()) == changeCommand {
				close(changing)
			}
		}
	}()
	var running sync.WaitGroup
	running.Go(func() { p.tellFailures(ctx) })
	tick := time.NewTicker(startsEvery)
	defer tick.Stop()
	for i, s := range all {
		running.Go(func() { s.report(ctx) })
		if i%oneIn == 0 {
			running.Go(func() { s.change(ctx, changing, time.Duration(i)*changesEvery/time.Duration(len(all))) })
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	<-ctx.Done()
	p.http.CloseIdleConnections()
	return nil // calls that are held end with the process
}

// dialer connects each time from another loopback address, as sidecars do: the
// operator bounds the connections of one.
func dialer() fasthttp.DialFunc {
	var last atomic.Uint32
	return func(address string) (net.Conn, error) {
		n := last.Add(1)
		from := &net.TCPAddr{IP: net.IPv4(127, 1, byte(n>>8), byte(n))}
		return (&net.Dialer{LocalAddr: from, Timeout: callTime}).Dial("tcp", address)
	}
}

// report keeps one report at the operator.
func (s *sidecar) report(ctx context.Context) {
	seen := ""
	for ctx.Err() == nil {
		answer, err := s.say(seen)
		if err != nil {
			s.player.failed.Add(1)
			s.player.why.Store(err.Error())
			select {
			case <-ctx.Done():
			case <-time.After(retryAfter):
			}
			continue
		}
		seen = answer.Version
		if answer.Drain && !s.drained {
			s.drained = true
			s.player.tell(notice{Drained: s.Server, At: time.Now().UnixNano()})
		}
	}
}

// change changes the players now and then and says so at once, beside the report
// that is held.
func (s *sidecar) change(ctx context.Context, changing <-chan struct{}, after time.Duration) {
	select {
	case <-ctx.Done():
		return
	case <-changing:
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(changesEvery)
		}
		s.mu.Lock()
		s.players = 1 + s.players%15
		s.mu.Unlock()
		if _, err := s.say("changed"); err != nil {
			s.player.failed.Add(1)
			s.player.why.Store(err.Error())
		}
	}
}

// say makes one report.
func (s *sidecar) say(seen string) (reportapi.Answer, error) {
	s.mu.Lock()
	s.sequence++
	r := reportapi.Report{
		Server: s.Server, Instance: "bench", Sequence: s.sequence, Seen: seen,
		Game: reportapi.Game{State: v1alpha1.GameReady, Reported: true, Players: &v1alpha1.PlayersStatus{Current: s.players, Capacity: 16}},
	}
	s.mu.Unlock()
	var answer reportapi.Answer
	body, err := json.Marshal(r)
	if err != nil {
		return answer, fmt.Errorf("encode a report: %w", err)
	}
	req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(res)
	req.SetRequestURI(s.player.url)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.Set(fasthttp.HeaderAuthorization, "Bearer "+s.Token)
	req.SetBody(body)
	if err := s.player.http.Do(req, res); err != nil {
		return answer, fmt.Errorf("report: %w", err)
	}
	if res.StatusCode() != fasthttp.StatusOK {
		return answer, fmt.Errorf("a report was answered %d %.200s", res.StatusCode(), res.Body())
	}
	if err := json.Unmarshal(res.Body(), &answer); err != nil {
		return answer, fmt.Errorf("decode an answer: %w", err)
	}
	return answer, nil
}

func (p *player) tell(t notice) {
	p.outLock.Lock()
	defer p.outLock.Unlock()
	_ = p.out.Encode(t) // the other end is gone, and so are we
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
