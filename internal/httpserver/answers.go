package httpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/valyala/fasthttp"

	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/objectmetrics"
)

// JSON answers with a status and a JSON document.
func JSON(response *fasthttp.Response, status int, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		Error(response, fasthttp.StatusInternalServerError, "the answer could not be written as JSON")
		return
	}
	response.SetStatusCode(status)
	response.Header.SetContentType("application/json")
	response.SetBody(body)
}

// Error answers with a status and a sentence about what to change.
func Error(response *fasthttp.Response, status int, sentence string) {
	JSON(response, status, informerapi.ErrorResponse{Error: sentence})
}

// refuse answers instead of a handler, and counts that.
func (s *Server) refuse(response *fasthttp.Response, status int, sentence string) {
	s.refused.WithLabelValues(strconv.Itoa(status)).Inc()
	Error(response, status, sentence)
}

// unread answers a request that fasthttp could not read.
func (s *Server) unread(ctx *fasthttp.RequestCtx, err error) {
	var tooMuchHeader *fasthttp.ErrSmallBuffer
	var network net.Error
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		s.refuse(&ctx.Response, fasthttp.StatusRequestEntityTooLarge, "the request's body is too large")
	case errors.As(err, &tooMuchHeader):
		s.refuse(&ctx.Response, fasthttp.StatusRequestHeaderFieldsTooLarge, "the request's header is too large")
	case errors.As(err, &network) && network.Timeout():
		s.refuse(&ctx.Response, fasthttp.StatusRequestTimeout, "the request took too long to arrive")
	default:
		s.refuse(&ctx.Response, fasthttp.StatusBadRequest, "this is not an HTTP request")
	}
	s.slow.wait(ctx)
}

// check answers 200 or, with the error, 503.
func check(what func() error) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		ctx.SetContentType("text/plain; charset=utf-8")
		if what != nil {
			if err := what(); err != nil {
				ctx.SetStatusCode(fasthttp.StatusServiceUnavailable)
				ctx.SetBodyString(err.Error() + "\n")
				return
			}
		}
		ctx.SetBodyString("ok\n")
	}
}

// metrics writes what a registry gathers, in the format that the scraper asks for.
func metrics(gatherer prometheus.Gatherer, around func(func())) fasthttp.RequestHandler {
	var last atomic.Int64 // how large the answer was: a buffer that grows leaves as much garbage again
	answer := func(ctx *fasthttp.RequestCtx) {
		accept := http.Header{"Accept": {string(ctx.Request.Header.Peek(fasthttp.HeaderAccept))}}
		format := expfmt.NegotiateAccept(accept, expfmt.DefaultOpenMetricsAcceptedFormats()...)
		size := last.Load()
		text := bytes.NewBuffer(make([]byte, 0, size+size/8))
		if err := objectmetrics.Write(gatherer, text, format); err != nil {
			Error(&ctx.Response, fasthttp.StatusInternalServerError, "the metrics could not be gathered or written")
			return
		}
		last.Store(int64(text.Len()))
		ctx.SetContentType(string(format))
		ctx.Response.SetBodyRaw(text.Bytes())
	}
	if around == nil {
		return answer
	}
	return func(ctx *fasthttp.RequestCtx) { around(func() { answer(ctx) }) }
}
