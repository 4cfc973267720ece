package restapi

import (
	"cmp"
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/operator/internal/restapi/gamecalls"
)

// processes answers calls of games' own processes. Their paths and bodies are those of Azure's project
// for game servers, for games that were written for that.
type processes struct{ calls *gamecalls.Calls }

// CodeInput is a call's code, which is taken from the first of these that there is.
type CodeInput struct {
	Code   string `query:"code" maxLength:"256" doc:"The Server's code."`
	Header string `header:"X-API-Server-Code" maxLength:"256" doc:"The code, too."`
	Bearer string `header:"Authorization" doc:"The code as a bearer token, too."`
}

func (c CodeInput) code() string { return cmp.Or(c.Code, c.Header, bearer(c.Bearer)) }

// by is who makes the call.
func (c CodeInput) by(ctx context.Context) gamecalls.By {
	return gamecalls.By{Code: c.code(), From: source(ctx)}
}

// WhoseInput is whose call it is.
type WhoseInput struct {
	_         struct{} `additionalProperties:"true"`
	Server    string   `json:"serverName,omitempty" required:"false" maxLength:"63" doc:"The Server's name, as SERVER_NAME has it. The code says it, too."`
	Namespace string   `json:"namespace,omitempty" required:"false" maxLength:"63" doc:"The Server's namespace, as SERVER_NAMESPACE has it."`
}

func (w WhoseInput) named() gamecalls.Named {
	return gamecalls.Named{Namespace: w.Namespace, Server: w.Server}
}

type processPlayersInput struct {
	CodeInput
	Body struct {
		WhoseInput
		Count int64 `json:"playerCount" minimum:"0" maximum:"1000000" doc:"How many play."`
	}
}

type processStateInput struct {
	CodeInput
	Body struct {
		WhoseInput
		State string `json:"state" maxLength:"63" doc:"Idle, Assigned, Running or PostMatch."`
	}
}

type processHealthInput struct {
	CodeInput
	Body struct {
		WhoseInput
		Health string `json:"health" maxLength:"63" doc:"Creating, Healthy or Failed."`
	}
}

type processDeletionInput struct {
	CodeInput
	Body struct {
		WhoseInput
		Marked bool `json:"markedForDeletion" doc:"Whether the Server goes once nobody plays."`
	}
}

type processRunningOutput struct {
	Body []gamecalls.Running `nullable:"false"`
}

func processOperation(method, path, id, summary string, statuses ...int) huma.Operation {
	op := huma.Operation{
		Method: method, Path: path, OperationID: id, Summary: summary, Tags: []string{"game processes"},
		MaxBodyBytes: gameapi.MaxBodyBytes, BodyReadTimeout: gamecalls.CallTime,
		Errors: append(statuses, http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound,
			http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable),
	}
	if method == http.MethodPost {
		op.Errors = withBody(op.Errors...)
	}
	return op
}

func (p *processes) register(api huma.API) {
	huma.Register(api, processOperation(http.MethodPost, "/setactiveplayers", "set-active-players", "Say how many play"), p.players)
	// The second ones are how some games spell it.
	for _, path := range [][2]string{{"/setdgsstate", "set-game-state"}, {"/setsdgsstate", "set-game-state-misspelt"}} {
		huma.Register(api, processOperation(http.MethodPost, path[0], path[1], "Say what the game does"), p.state)
	}
	for _, path := range [][2]string{{"/setdgshealth", "set-game-health"}, {"/setsdgshealth", "set-game-health-misspelt"}} {
		huma.Register(api, processOperation(http.MethodPost, path[0], path[1], "Say whether the game is well"), p.health)
	}
	huma.Register(api, processOperation(http.MethodPost, "/setdgsmarkedfordeletion", "mark-for-deletion", "Have the Server go once nobody plays", http.StatusConflict), p.deletion)
	huma.Register(api, processOperation(http.MethodGet, "/running", "list-running", "List the servers that run, of those whose games may call this"), p.running)
}

// set takes a call to the sidecar, and answers.
func (p *processes) set(ctx context.Context, in CodeInput, whose WhoseInput, path string, body any) (*done, error) {
	if err := p.calls.Do(ctx, in.by(ctx), whose.named(), path, body); err != nil {
		return nil, answerTo(ctx, err)
	}
	return success(http.StatusOK), nil
}

func (p *processes) players(ctx context.Context, in *processPlayersInput) (*done, error) {
	return p.set(ctx, in.CodeInput, in.Body.WhoseInput, gameapi.PlayersPath, gameapi.Players{Count: &in.Body.Count})
}

func (p *processes) state(ctx context.Context, in *processStateInput) (*done, error) {
	return p.set(ctx, in.CodeInput, in.Body.WhoseInput, gameapi.StatePath, gameapi.State{State: in.Body.State})
}

func (p *processes) health(ctx context.Context, in *processHealthInput) (*done, error) {
	return p.set(ctx, in.CodeInput, in.Body.WhoseInput, gameapi.HealthPath, gameapi.Health{Health: in.Body.Health})
}

func (p *processes) deletion(ctx context.Context, in *processDeletionInput) (*done, error) {
	return p.set(ctx, in.CodeInput, in.Body.WhoseInput, gameapi.DeletionPath, gameapi.Deletion{Marked: &in.Body.Marked})
}

func (p *processes) running(ctx context.Context, in *CodeInput) (*processRunningOutput, error) {
	list, err := p.calls.Running(ctx, in.by(ctx))
	if err != nil {
		return nil, answerTo(ctx, err)
	}
	return &processRunningOutput{Body: list}, nil
}

// processError is the answer to a call of a game's process that failed.
func processError(e *gamecalls.Error) error {
	switch e.Kind {
	case gamecalls.Wrong:
		return fail(http.StatusUnauthorized, "", sentence(e.Message))
	case gamecalls.NotFound:
		return fail(http.StatusNotFound, "", sentence(e.Message))
	case gamecalls.Conflict:
		return fail(http.StatusConflict, "", sentence(e.Message))
	case gamecalls.Limited:
		return later(fail(http.StatusTooManyRequests, "", sentence(e.Message)))
	case gamecalls.Unavailable:
		return later(fail(http.StatusServiceUnavailable, "", sentence(e.Message)))
	case gamecalls.Invalid:
	}
	return fail(http.StatusBadRequest, "body", sentence(e.Message))
}
