package restapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"dormouse.dev/dormouse/operator/internal/restapi/access"
	"dormouse.dev/dormouse/operator/internal/restapi/allocate"
)

// allocatePath is where matchmakers get Servers.
const allocatePath = "/api/v1/allocate"

// maxWait bounds how long a call for a Server may wait: proxies on the way give up long before.
const maxWait = 10 * time.Minute

type near struct {
	Key   string `json:"key" minLength:"1" maxLength:"317" doc:"The label's name, such as topology.kubernetes.io/region."`
	Value string `json:"value" maxLength:"63" doc:"Its value."`
}

type allocateInput struct {
	Wait string `query:"wait" default:"0s" maxLength:"32" doc:"How long to wait for a Server, such as 30s, up to 10m; 0s: not at all." example:"30s"`
	Body struct {
		Session  string            `json:"session,omitempty" required:"false" maxLength:"256" doc:"Your id for what you ask for, of 256 bytes in UTF-8 at most: the same again is answered with the same Server. Without one the answer has one that was made for you."`
		Kind     string            `json:"kind,omitempty" required:"false" enum:"GameType,Fleet" doc:"What target names; by default a GameType."`
		Target   string            `json:"target,omitempty" required:"false" maxLength:"63" doc:"The name of the GameType or Fleet; without one all Servers with the labels count."`
		Labels   map[string]string `json:"labels,omitempty" required:"false" maxProperties:"16" doc:"Labels that the Server must have."`
		Players  int32             `json:"players,omitempty" required:"false" minimum:"0" maximum:"10000" doc:"How many places are needed on a Server that others may share; 0, the default, asks for a whole Server."`
		Strategy string            `json:"strategy,omitempty" required:"false" enum:"Packed,Distributed" doc:"Packed, the default, fills Servers and nodes that are in use; Distributed spreads out."`
		Near     *near             `json:"near,omitempty" required:"false" doc:"A label of the nodes whose Servers come first."`
		TTL      string            `json:"ttl,omitempty" required:"false" maxLength:"32" doc:"How long you have it at most, such as 2h, from 1s to 168h; 0s, the default: until it is released or the Server is gone." example:"2h"`
	}
}

// Allocated is a Server that somebody got.
type Allocated struct {
	Success     bool            `json:"success" enum:"true"`
	Session     string          `json:"session" doc:"Release it with this."`
	Allocation  string          `json:"allocation" doc:"The name of the Allocation in Kubernetes."`
	Server      string          `json:"server" doc:"The Server's name."`
	Address     string          `json:"address" doc:"Where it is reached."`
	Ports       []AllocatedPort `json:"ports" nullable:"false" doc:"The ports at address."`
	Node        string          `json:"node,omitempty" doc:"The node that it is on."`
	AllocatedAt time.Time       `json:"allocated_at"`
	ExpiresAt   *time.Time      `json:"expires_at,omitempty" doc:"Until when you have it; absent: no end."`
	Existed     bool            `json:"existed" doc:"Whether the session had it before."`
}

// AllocatedPort is a port of such a Server.
type AllocatedPort struct {
	Name     string `json:"name"`
	Port     int32  `json:"port" minimum:"1" maximum:"65535"`
	Protocol string `json:"protocol" doc:"TCP, UDP or TCPUDP, or what is spoken over one."`
}

type allocateOutput struct{ Body Allocated }

type releaseInput struct {
	Body struct {
		Session string `json:"session" minLength:"1" maxLength:"256" doc:"The session whose Server is released."`
	}
}

// allocations answers matchmakers.
type allocations struct {
	service   *allocate.Service
	access    *access.Reviewer
	namespace string
	waiting   *streams
}

func (a *allocations) register(api huma.API) {
	op := operation(http.MethodPost, allocatePath, "allocate", "Get a Server, or places on one, that nobody else gets",
		withBody(http.StatusConflict, http.StatusUnprocessableEntity)...)
	op.Description = "Where none is Ready, a GameType that sleeps is woken, and with wait the answer comes when there is one. Else, or where there is none in time, it is 503 with Retry-After, and nothing is left allocated."
	huma.Register(api, op, a.allocate)
	huma.Register(api, operation(http.MethodPost, "/api/v1/allocate/release", "release", "Release a session's Server",
		withBody(http.StatusNotFound)...), a.release)
}

func (a *allocations) allocate(ctx context.Context, in *allocateInput) (*allocateOutput, error) {
	if err := a.access.Check(ctx, caller(ctx), access.Action{Namespace: a.namespace, Verb: "create", Resource: "allocations"}); err != nil {
		return nil, answerTo(ctx, err)
	}
	b := &in.Body
	r := allocate.Request{
		Session: b.Session, Kind: b.Kind, Target: b.Target, Labels: b.Labels, Players: b.Players, Strategy: b.Strategy,
	}
	if b.Near != nil {
		r.NearKey, r.NearValue = b.Near.Key, b.Near.Value
	}
	var err error
	if r.Wait, err = time.ParseDuration(in.Wait); err != nil || r.Wait < 0 || r.Wait > maxWait {
		return nil, fail(http.StatusBadRequest, "query.wait", "wait must be a duration from 0s to 10m such as 30s.")
	}
	if b.TTL != "" {
		if r.TTL, err = time.ParseDuration(b.TTL); err != nil || r.TTL < 0 {
			return nil, fail(http.StatusBadRequest, "body.ttl", "ttl must be 0s, or a duration from 1s to 168h such as 2h.")
		}
	}
	if r.Wait > 0 {
		leave, ok := a.waiting.admit(caller(ctx))
		if !ok {
			return nil, later(fail(http.StatusTooManyRequests, "", "Too many calls wait for a Server: come again later."))
		}
		defer leave()
		mayTake(ctx, r.Wait)
	}
	got, err := a.service.Allocate(ctx, a.namespace, r)
	if err != nil {
		return nil, allocationError(ctx, err)
	}
	out := &allocateOutput{Body: Allocated{
		Success: true, Session: got.Session, Allocation: got.Allocation, Server: got.Server, Address: got.Address,
		Ports: []AllocatedPort{}, Node: got.Node, AllocatedAt: got.AllocatedAt, Existed: got.Existed,
	}}
	for _, p := range got.Ports {
		out.Body.Ports = append(out.Body.Ports, AllocatedPort{Name: p.Name, Port: p.Port, Protocol: string(p.Protocol)})
	}
	if !got.ExpiresAt.IsZero() {
		out.Body.ExpiresAt = &got.ExpiresAt
	}
	return out, nil
}

func (a *allocations) release(ctx context.Context, in *releaseInput) (*done, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := a.access.Check(ctx, caller(ctx), access.Action{Namespace: a.namespace, Verb: "delete", Resource: "allocations"}); err != nil {
		return nil, answerTo(ctx, err)
	}
	if err := a.service.Release(ctx, a.namespace, in.Body.Session); err != nil {
		return nil, allocationError(ctx, err)
	}
	return success(http.StatusOK), nil
}

func allocationError(ctx context.Context, err error) error {
	var refused *allocate.Refused
	switch {
	case errors.As(err, &refused):
		f := fail(http.StatusServiceUnavailable, "", sentence(refused.Message))
		f.Detail.Code = codeNoServer
		seconds := max(1, int(math.Ceil(refused.RetryAfter.Seconds())))
		return huma.ErrorWithHeaders(f, http.Header{"Retry-After": {strconv.Itoa(seconds)}})
	case errors.Is(err, allocate.ErrInvalid):
		return fail(http.StatusBadRequest, "body", sentence(err.Error()))
	case errors.Is(err, allocate.ErrConflict):
		return fail(http.StatusConflict, "body.session", sentence(err.Error()))
	case errors.Is(err, allocate.ErrUnknownSession):
		return fail(http.StatusNotFound, "body.session", sentence(err.Error()))
	}
	return answerTo(ctx, err)
}
