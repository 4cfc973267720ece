// Package control answers the operator's questions to the resolver: which ports it serves and
// which clients it has. Only the operator's service account may ask.
package control

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/serviceauth"
)

// verifyTimeout bounds the wait for the cluster's keys.
const verifyTimeout = 3 * time.Second

// Verifier verifies a token and returns whose it is.
type Verifier interface {
	Verify(ctx context.Context, token string) (serviceauth.Identity, error)
}

// DataPlane is what the answers come from.
type DataPlane interface {
	Routes(uids ...string) informerapi.RoutesResponse
	Sessions(uids ...string) informerapi.SessionsResponse
}

// Register registers the endpoints with a server. Account is the operator's service account as
// namespace/name.
func Register(server *httpserver.Server, plane DataPlane, verifier Verifier, account string) {
	g := guard{verifier: verifier, account: account}
	server.Handle(fasthttp.MethodGet, informerapi.RoutesPath, g.wrap(func(uids []string) any { return plane.Routes(uids...) }))
	server.Handle(fasthttp.MethodGet, informerapi.SessionsPath, g.wrap(func(uids []string) any { return plane.Sessions(uids...) }))
}

type guard struct {
	verifier Verifier
	account  string
}

// wrap answers callers that are authorized.
func (g guard) wrap(answer func(uids []string) any) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		token, err := serviceauth.BearerToken(ctx.Request.Header.Peek(fasthttp.HeaderAuthorization))
		if err != nil {
			ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, "Bearer")
			httpserver.Error(&ctx.Response, fasthttp.StatusUnauthorized, "send the operator's service account token as a bearer token")
			return
		}
		bounded, cancel := context.WithTimeout(context.Background(), verifyTimeout)
		defer cancel()
		identity, err := g.verifier.Verify(bounded, token)
		switch {
		case errors.Is(err, serviceauth.ErrKeysUnavailable):
			ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, "1")
			httpserver.Error(&ctx.Response, fasthttp.StatusServiceUnavailable, serviceauth.ErrKeysUnavailable.Error())
		case err != nil:
			ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, "Bearer")
			httpserver.Error(&ctx.Response, fasthttp.StatusUnauthorized, err.Error())
		case identity.Account() != g.account:
			httpserver.Error(&ctx.Response, fasthttp.StatusForbidden, "only the operator's service account may ask this")
		default:
			httpserver.JSON(&ctx.Response, fasthttp.StatusOK, answer(uidsOf(ctx.QueryArgs())))
		}
	}
}

// uidsOf are the ElasticServices that a question is about; none: it is about all.
func uidsOf(query *fasthttp.Args) (uids []string) {
	if uid := query.Peek(informerapi.UIDQuery); len(uid) > 0 {
		return []string{string(uid)}
	}
	if several := query.Peek(informerapi.UIDsQuery); len(several) > 0 {
		return strings.Split(string(several), ",")
	}
	return nil
}
