package sidecars

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/internal/reporttoken"
)

// capacity is how many may play in each game.
const capacity = 16

// sidecar is one at work.
type sidecar struct {
	Sidecar
	player *player
	signer *reporttoken.Signer // nil where it has a token
	ended  chan struct{}
	end    func()

	mu       sync.Mutex
	sequence uint64
	players  int32
	// last is the last answer to the held report.
	last reportapi.Answer
	// said is what was last reported.
	said said
}

// said is what differs between a sidecar's reports.
type said struct {
	restore, shutdown bool
	players           int32
	look              string
}

func newSidecar(p *player, of Sidecar) (*sidecar, error) {
	s := &sidecar{Sidecar: of, player: p, players: of.Players, ended: make(chan struct{})}
	s.end = sync.OnceFunc(func() { close(s.ended) })
	if of.Key == nil {
		return s, nil
	}
	pod := reporttoken.Pod{Namespace: of.Key.Namespace, Name: of.Server, UID: of.Key.UID}
	var err error
	s.signer, err = reporttoken.NewSigner(of.Key.ID, of.Key.Text, pod)
	return s, err
}

// report keeps one report at the operator, the first of which asks what an earlier sidecar said.
func (s *sidecar) report(ctx context.Context) {
	restore, seen, pause := true, "", firstRetry
	for {
		answer, parted, err := s.say(restore, seen)
		select {
		case <-ctx.Done():
			return
		case <-s.ended:
			return // its Pod is gone, and so nothing has failed
		default:
		}
		if err != nil {
			s.player.note(err)
			select {
			case <-ctx.Done():
			case <-s.ended:
			case <-time.After(pause):
			}
			pause = min(2*pause, lastRetry)
			continue
		}
		restore, seen, pause = false, answer.Version, firstRetry
		s.mu.Lock()
		drained := answer.Drain && !s.last.Drain
		unready := (answer.Drain || answer.Shutdown) && !s.last.Drain && !s.last.Shutdown
		s.last = answer
		s.mu.Unlock()
		if drained {
			s.player.tell(notice{Drained: s.Server, At: time.Now().UnixNano()})
		}
		if unready {
			s.player.tell(notice{Unready: s.Server})
		}
		if parted && !s.hasNews() {
			select {
			case <-ctx.Done():
				return
			case <-s.ended:
				return
			case <-time.After(rand.N(reportapi.ReturnTime)):
			}
		}
	}
}

// change changes the players now and then and says so at once, beside the report
// that is held.
func (s *sidecar) change(ctx context.Context, after time.Duration) {
	timer := time.NewTimer(after)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ended:
			return
		case <-timer.C:
			timer.Reset(changesEvery)
		}
		s.mu.Lock()
		s.players = 1 + s.players%(capacity-1)
		s.mu.Unlock()
		if _, _, err := s.say(false, "changed"); err != nil {
			s.player.note(err)
		}
	}
}

// hasNews reports whether the next report says something new.
func (s *sidecar) hasNews() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.news(false) != s.said
}

// news is what the next report says. The lock is held.
func (s *sidecar) news(restore bool) said {
	return said{restore: restore, shutdown: s.last.Shutdown, players: s.players, look: s.last.Look}
}

// compose is the next report, and whether it says what the one before said.
func (s *sidecar) compose(restore bool, seen string) (_ reportapi.Report, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sequence++
	now := s.news(restore)
	again, s.said = now == s.said && !restore, now
	return reportapi.Report{
		Server: s.Server, Instance: "bench", Sequence: s.sequence, Restore: restore, Seen: seen,
		Game: reportapi.Game{
			State: v1alpha1.GameReady, Reported: true,
			Players: &v1alpha1.PlayersStatus{Current: s.players, Capacity: capacity},
		},
		DeletionAllowed: s.players == 0, ShutdownSeen: s.last.Shutdown, Looked: s.last.Look,
	}, again
}

// say makes one report, which is held while seen is the last answer's version. Parted: the replica closes the
// connection.
func (s *sidecar) say(restore bool, seen string) (answer reportapi.Answer, parted bool, err error) {
	report, again := s.compose(restore, seen)
	body, err := json.Marshal(report)
	if err != nil {
		return answer, false, fmt.Errorf("encode a report: %w", err)
	}
	token := s.Token
	if s.signer != nil {
		if token, err = s.signer.Get(); err != nil {
			return answer, false, err
		}
	}
	req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(res)
	req.SetRequestURI(s.player.url)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.Set(fasthttp.HeaderAuthorization, "Bearer "+token)
	if again {
		req.Header.Set(reportapi.HoldHeader, strconv.Itoa(int(reportapi.RenewalTime.Seconds())))
	}
	req.SetBody(body)
	if err := s.player.http.Do(req, res); err != nil {
		return answer, false, fmt.Errorf("report: %w", err)
	}
	if res.StatusCode() != fasthttp.StatusOK {
		return answer, false, fmt.Errorf("a report was answered %d %.200s", res.StatusCode(), res.Body())
	}
	if err := json.Unmarshal(res.Body(), &answer); err != nil {
		return answer, false, fmt.Errorf("decode an answer: %w", err)
	}
	return answer, res.ConnectionClose(), nil
}
