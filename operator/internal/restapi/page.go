package restapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/operator/internal/restapi/access"
	"dormouse.dev/dormouse/operator/internal/restapi/feed"
	"dormouse.dev/dormouse/operator/internal/restapi/hosting"
	"dormouse.dev/dormouse/operator/internal/restapi/page"
)

// people does what the page asks for, with the rights of whoever looks at it: the same calls as the
// API's, and the same checks.
type people struct {
	*servers
	gate *gate
	feed *feed.Feed
}

// person is somebody who looks at the page.
type person struct{ user *access.User }

// Name is the name that Kubernetes has for the user.
func (p person) Name() string { return p.user.Name }

// refused is an error as the page shows it.
func refused(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if !unavailable(err) {
		// The page logs what is unexpected.
		ctx = logr.NewContext(ctx, logr.Discard())
	}
	f := &Failure{}
	if !errors.As(answerTo(ctx, err), &f) || f.status == http.StatusInternalServerError {
		return err
	}
	return page.Refuse(f.status, "%s", f.Detail.Message)
}

// allowed checks that a person may do something to a server; id is 0 for all of them.
func (p people) allowed(ctx context.Context, who page.Caller, verb string, id int64) error {
	user, ok := who.(person)
	if !ok {
		return access.ErrUnauthenticated
	}
	return p.mayUser(ctx, user.user, verb, id)
}

// do checks a person's right to change a server, changes it, and writes an audit line.
func (p people) do(ctx context.Context, who page.Caller, verb, what string, id int64, change func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := p.allowed(ctx, who, verb, id)
	if err == nil {
		err = change(ctx)
	}
	program.Unsampled(p.gate.log).Info("Change asked for on the page", "user", who.Name(), "operation", what, "server", id, "done", err == nil)
	return refused(ctx, err)
}

// SignIn tells whose a token is.
func (p people) SignIn(ctx context.Context, token string) (page.Caller, error) {
	u, err := p.access.User(ctx, source(ctx), token)
	p.metrics.askedWho(err)
	if errors.Is(err, access.ErrUnauthenticated) {
		return nil, page.Refuse(http.StatusUnauthorized, "Kubernetes doesn't accept this token. kubectl create token makes one.")
	}
	if err != nil {
		return nil, refused(ctx, err)
	}
	if !p.gate.allow(u.Key) {
		p.metrics.refused("rate")
		return nil, page.Refuse(http.StatusTooManyRequests, "This token makes too many calls: wait a second.")
	}
	accepted(ctx)
	return person{u}, nil
}

// List returns servers.
func (p people) List(ctx context.Context, who page.Caller, q page.Query) (page.Listing, error) {
	if err := p.allowed(ctx, who, "list", 0); err != nil {
		return page.Listing{}, refused(ctx, err)
	}
	after, err := strconv.ParseInt(q.After, 10, 64)
	if q.After != "" && err != nil {
		return page.Listing{}, page.Refuse(http.StatusBadRequest, "There is no such part of the list: begin at its start.")
	}
	list, more, err := p.hosting.List(ctx, hosting.Filter{Text: q.Text, After: after, Limit: q.Limit})
	if err != nil {
		return page.Listing{}, refused(ctx, err)
	}
	var l page.Listing
	for i := range list {
		l.Servers = append(l.Servers, shown(&list[i]))
	}
	if more {
		l.Next = strconv.FormatInt(list[len(list)-1].ID, 10)
	}
	return l, nil
}

// Get returns a server.
func (p people) Get(ctx context.Context, who page.Caller, id int64) (page.Server, error) {
	if err := p.allowed(ctx, who, "get", id); err != nil {
		return page.Server{}, refused(ctx, err)
	}
	s, err := p.hosting.Get(ctx, id)
	return shown(&s), refused(ctx, err)
}

// Games are the games that are offered.
func (p people) Games(ctx context.Context, who page.Caller) ([]string, error) {
	if err := p.allowed(ctx, who, "list", 0); err != nil {
		return nil, refused(ctx, err)
	}
	names, err := p.hosting.Games(ctx)
	return names, refused(ctx, err)
}

// Create makes a server.
func (p people) Create(ctx context.Context, who page.Caller, w page.Wish) error {
	if w.ID < 1 || w.ID > hosting.MaxID || w.RAMGB < 1 || w.RAMGB > hosting.MaxRAM || w.DiskGB < 0 || w.DiskGB > hosting.MaxDisk {
		return page.Refuse(http.StatusBadRequest, "Choose a number from 1 to %d, memory from 1 to %d GiB, and a disk of at most %d GiB.", int64(hosting.MaxID), hosting.MaxRAM, hosting.MaxDisk)
	}
	return p.do(ctx, who, "create", "create-server", w.ID, func(ctx context.Context) error {
		_, err := p.hosting.Create(ctx, w.ID, hosting.Want{RAM: int64(w.RAMGB), Disk: int64(w.DiskGB), Game: w.Game})
		return err
	})
}

// Start starts a server.
func (p people) Start(ctx context.Context, who page.Caller, id int64) error {
	return p.do(ctx, who, "patch", "start-server", id, func(ctx context.Context) error {
		if err := p.hosting.Start(ctx, id); err != nil {
			return err
		}
		// People want to know where to play. It starts, whether there is such a place or not.
		_, err := p.hosting.Port(ctx, id, hosting.Primary)
		if own := (*hosting.Error)(nil); err != nil && !errors.As(err, &own) && !errors.Is(err, context.Canceled) {
			logr.FromContextOrDiscard(ctx).Error(err, "A server was started, and has no number for its players yet", "server", id)
		}
		return nil
	})
}

// Stop stops a server.
func (p people) Stop(ctx context.Context, who page.Caller, id int64, force bool) error {
	return p.do(ctx, who, "patch", "stop-server", id, func(ctx context.Context) error { return p.hosting.Stop(ctx, id, force) })
}

// Wake wakes a server.
func (p people) Wake(ctx context.Context, who page.Caller, id int64) error {
	return p.do(ctx, who, "patch", "wake-server", id, func(ctx context.Context) error { return p.hosting.Wake(ctx, id) })
}

// KeepAwake keeps a server awake.
func (p people) KeepAwake(ctx context.Context, who page.Caller, id int64, howLong time.Duration) error {
	return p.do(ctx, who, "patch", "keep-server-awake", id, func(ctx context.Context) error {
		return p.hosting.KeepAwake(ctx, id, p.now().Add(min(howLong, hosting.MaxKeepAwake)))
	})
}

// Logs is a game's log.
func (p people) Logs(ctx context.Context, who page.Caller, id int64, lines int, follow bool) (io.ReadCloser, error) {
	if err := p.allowed(ctx, who, "get", id); err != nil {
		return nil, refused(ctx, err)
	}
	pod, container, err := p.hosting.Pod(ctx, id)
	if err != nil {
		return nil, refused(ctx, err)
	}
	body, err := p.streams.openLog(ctx, pod, container, int64(lines), follow)
	return body, refused(ctx, err)
}

// Events are a server's events, the newest first.
func (p people) Events(ctx context.Context, who page.Caller, id int64) ([]page.Event, error) {
	if err := p.allowed(ctx, who, "get", id); err != nil {
		return nil, refused(ctx, err)
	}
	list, err := p.streams.listEvents(ctx, id, 0)
	if err != nil {
		return nil, refused(ctx, err)
	}
	var events []page.Event
	for i := range list.Items {
		events = append(events, shownEvent(&list.Items[i]))
	}
	slices.SortFunc(events, func(a, b page.Event) int { return b.When.Compare(a.When) })
	return events, nil
}

// WatchEvents sends a server's events.
func (p people) WatchEvents(ctx context.Context, who page.Caller, id int64) (<-chan page.Event, error) {
	if err := p.allowed(ctx, who, "get", id); err != nil {
		return nil, refused(ctx, err)
	}
	// From now on: earlier ones are the page's already.
	list, err := p.streams.listEvents(ctx, id, 1)
	if err != nil {
		return nil, refused(ctx, err)
	}
	events, err := follow(ctx, p.streams, id, list.ResourceVersion, nil, shownEvent)
	return events, refused(ctx, err)
}

func shownEvent(e *corev1.Event) page.Event {
	is := eventOf(e)
	return page.Event{
		ID: string(e.UID), When: is.At, Warning: is.Type == corev1.EventTypeWarning, Reason: is.Reason, Message: is.Message, Count: int(is.Count),
	}
}

// Wakes are the last wakes that this replica saw.
func (p people) Wakes(ctx context.Context, who page.Caller, id int64) ([]page.Wake, error) {
	if err := p.allowed(ctx, who, "get", id); err != nil {
		return nil, refused(ctx, err)
	}
	var wakes []page.Wake
	for _, w := range p.feed.Wakes(id) {
		seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
		is := page.Wake{Asked: w.Asked, Took: seconds(w.Took), Message: w.Message}
		for _, s := range []page.Stage{
			{Name: "scheduled", Took: seconds(w.Scheduled)},
			{Name: "started", Took: seconds(w.Started)},
			{Name: "up", Took: seconds(w.Up)},
			{Name: "handed over", Took: seconds(w.HandedOver)},
		} {
			if s.Took > 0 {
				is.Stages = append(is.Stages, s)
			}
		}
		wakes = append(wakes, is)
	}
	return wakes, nil
}

// Players are the samples of a day that this replica saw.
func (p people) Players(ctx context.Context, who page.Caller, id int64) ([]page.Sample, error) {
	if err := p.allowed(ctx, who, "get", id); err != nil {
		return nil, refused(ctx, err)
	}
	var samples []page.Sample
	for _, s := range p.feed.Samples(id) {
		samples = append(samples, page.Sample{At: s.At, Players: int(s.Players), Asleep: s.Asleep})
	}
	return samples, nil
}

// Watch sends the servers that change.
func (p people) Watch(ctx context.Context, who page.Caller) (<-chan page.Change, error) {
	if err := p.allowed(ctx, who, "list", 0); err != nil {
		return nil, refused(ctx, err)
	}
	from, to := p.feed.Watch(ctx), make(chan page.Change)
	go func() {
		defer close(to)
		for c := range from {
			change := page.Change{Server: shown(&c.Server), Gone: c.Gone}
			change.Server.ID = c.ID
			select {
			case to <- change:
			case <-ctx.Done():
				return
			}
		}
	}()
	return to, nil
}

// shown is a server as the page shows it.
func shown(s *hosting.Server) page.Server {
	is := page.Server{
		ID: s.ID, Name: s.Name, Game: s.Game, State: s.State, Why: s.Message, Running: s.Running, Asleep: s.Asleep,
		Capacity: int(s.Players.Capacity), Address: s.Address, RAM: fmt.Sprintf("%d GiB", s.RAM), Disk: fmt.Sprintf("%d GiB", s.Disk),
		Saved: s.MoneySaved, Created: s.CreatedAt,
	}
	players := int(s.Players.Current)
	is.Players = &players
	if s.AsleepSince != nil {
		is.Since = *s.AsleepSince
	}
	if s.KeptAwake != nil {
		is.KeptAwakeUntil = *s.KeptAwake
	}
	named := map[int32]bool{}
	for name, number := range s.Ports {
		named[number] = named[number] || name != hosting.Primary
	}
	for name, number := range s.Ports {
		// primary is most often another name of a port that has one.
		if name != hosting.Primary || !named[number] {
			is.Ports = append(is.Ports, page.Port{Name: name, Number: int(number)})
		}
	}
	slices.SortFunc(is.Ports, func(a, b page.Port) int { return strings.Compare(a.Name, b.Name) })
	return is
}
