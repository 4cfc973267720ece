// Package gameapi answers the calls of a game's process that the REST API hands on. They set what the
// SDK's calls set. Unlike those they come over the network, so each shows the Server's code.
package gameapi

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/valyala/fasthttp"
	kjson "sigs.k8s.io/json"

	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/sidecar/internal/game"
)

// Register adds the paths to a server. code is the Server's; empty: nothing is added.
func Register(server *httpserver.Server, code string, g *game.Game) {
	if code == "" {
		return
	}
	calls := calls{g}
	server.Handle(http.MethodGet, gameapi.CheckPath, withCode(code, func(*fasthttp.RequestCtx) error { return nil }))
	for path, set := range map[string]func(*fasthttp.RequestCtx) error{
		gameapi.PlayersPath:  calls.players,
		gameapi.StatePath:    calls.state,
		gameapi.HealthPath:   calls.health,
		gameapi.DeletionPath: calls.deletion,
	} {
		server.Handle(http.MethodPost, path, withCode(code, set))
	}
}

// withCode has a call made for those who show the code.
func withCode(code string, call func(*fasthttp.RequestCtx) error) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		if !gameapi.Same(string(ctx.Request.Header.Peek(gameapi.CodeHeader)), code) {
			httpserver.Error(&ctx.Response, http.StatusUnauthorized, "the code is missing, or isn't this Server's")
			return
		}
		if len(ctx.PostBody()) > gameapi.MaxBodyBytes {
			httpserver.Error(&ctx.Response, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", gameapi.MaxBodyBytes))
			return
		}
		if err := call(ctx); err != nil {
			httpserver.Error(&ctx.Response, statusOf(err), err.Error())
			return
		}
		httpserver.JSON(&ctx.Response, http.StatusOK, struct{}{})
	}
}

// errBody is a body that a call can't be made from.
var errBody = errors.New("the body is wrong")

func statusOf(err error) int {
	switch kind := game.KindOf(err); {
	case errors.Is(err, errBody), kind == game.Invalid, kind == game.OutOfRange:
		return http.StatusBadRequest
	case kind == game.TooLate:
		return http.StatusConflict
	case kind == game.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// read reads a body. Fields that it doesn't know are those of a later version.
func read(ctx *fasthttp.RequestCtx, into any, example string) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(ctx.PostBody(), into); err != nil {
		return fmt.Errorf("%w: it must be like %s", errBody, example)
	}
	return nil
}

// word finds what was said among the words that there are.
func word(field, said string, among []string) (string, error) {
	found, ok := gameapi.Word(said, among)
	if !ok {
		return "", fmt.Errorf("%w: %s must be %s", errBody, field, strings.Join(among, ", "))
	}
	return found, nil
}

// calls are what a game may say.
type calls struct{ game *game.Game }

func (c calls) players(ctx *fasthttp.RequestCtx) error {
	const example = `{"playerCount":3}`
	var body gameapi.Players
	if err := read(ctx, &body, example); err != nil {
		return err
	}
	if body.Count == nil {
		return fmt.Errorf("%w: it must be like %s", errBody, example)
	}
	return c.game.SetPlayers(*body.Count, nil) //nolint:wrapcheck // a sentence for the game's author
}

func (c calls) state(ctx *fasthttp.RequestCtx) error {
	var body gameapi.State
	if err := read(ctx, &body, `{"state":"Running"}`); err != nil {
		return err
	}
	state, err := word("state", body.State, gameapi.States)
	switch {
	case err != nil:
		return err
	case state == gameapi.Idle:
		c.game.Ready()
	default: // after a match its players are still there
		c.game.Allocate()
	}
	return nil
}

func (c calls) health(ctx *fasthttp.RequestCtx) error {
	var body gameapi.Health
	if err := read(ctx, &body, `{"health":"Healthy"}`); err != nil {
		return err
	}
	health, err := word("health", body.Health, gameapi.Healths)
	switch health {
	case gameapi.Healthy:
		c.game.Healthy()
	case gameapi.Failed:
		c.game.Failed()
	}
	return err // Creating is what a game is before it says anything
}

func (c calls) deletion(ctx *fasthttp.RequestCtx) error {
	const example = `{"markedForDeletion":true}`
	var body gameapi.Deletion
	if err := read(ctx, &body, example); err != nil {
		return err
	}
	if body.Marked == nil {
		return fmt.Errorf("%w: it must be like %s", errBody, example)
	}
	return c.game.EndWhenEmpty(*body.Marked) //nolint:wrapcheck // a sentence for the game's author
}
