package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// sdkInterval is how often the number of players is looked at.
const sdkInterval = 20 * time.Millisecond

// reportPlayers tells a sidecar how many play, whenever that changes, as a game
// does that has no other way: over local HTTP.
func (s *Server) reportPlayers(ctx context.Context, sidecar string) {
	reported := int64(-1)
	tick := time.NewTicker(sdkInterval)
	defer tick.Stop()
	for {
		if n := s.counters.players(time.Now()); n != reported {
			status, _, err := callSDK(ctx, http.MethodPut, sidecar+"/players", fmt.Appendf(nil, `{"current":%d}`, n))
			if err == nil && status == http.StatusOK {
				reported = n
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// forwardSDK lets a test speak to the game's sidecar, which listens on loopback
// only.
func forwardSDK(sidecar string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		status, answer, err := callSDK(r.Context(), r.Method, sidecar+strings.TrimPrefix(r.URL.Path, "/sdk"), body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(answer)
	}
}

func callSDK(ctx context.Context, method, url string, body []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("make a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("ask the sidecar: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return 0, nil, fmt.Errorf("read the sidecar's answer: %w", err)
	}
	return response.StatusCode, answer, nil
}
