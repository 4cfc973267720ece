package local

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/sidecar/internal/game"
)

// permission is the body of /allow_delete.
type permission struct {
	Allowed *bool `json:"allowed"`
}

// wish is the body of POST /shutdown.
type wish struct {
	Shutdown *bool `json:"shutdown"`
}

// orders is the answer of GET /shutdown.
type orders struct {
	Shutdown bool `json:"shutdown"`
	Drain    bool `json:"drain"`
}

// players is the body of /players.
type players struct {
	Current  *whole `json:"current"`
	Capacity *whole `json:"capacity,omitempty"`
}

// whole is a whole number. A language that has floating-point numbers alone, as Lua does, writes 3 as 3.0.
type whole int64

// UnmarshalJSON reads any notation of a whole number.
func (n *whole) UnmarshalJSON(text []byte) error {
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return fmt.Errorf("%s isn't a whole number", text)
	}
	*n = whole(f)
	return nil
}

// health is the answer of GET /health.
type health struct {
	Healthy bool   `json:"healthy"`
	Message string `json:"message"`
}

// empty is the answer of the SDK's calls.
type empty struct{}

// restored is the state once that from before this sidecar started is known: who reads must not take
// for true what the game has said otherwise. On failure it answers the call and returns false.
func (h handlers) restored(w http.ResponseWriter, r *http.Request) (game.Snapshot, bool) {
	snapshot, err := h.game.AwaitRestored(r.Context())
	if err != nil {
		failed(w, err)
	}
	return snapshot, err == nil
}

// allowDelete answers whether the Server may be deleted now.
func (h handlers) allowDelete(w http.ResponseWriter, r *http.Request) {
	if now, ok := h.restored(w, r); ok {
		answer(w, http.StatusOK, permission{&now.DeletionAllowed})
	}
}

func (h handlers) setAllowDelete(w http.ResponseWriter, r *http.Request) {
	const example = `{"allowed":true}`
	var body permission
	if !read(w, r, &body, example) {
		return
	}
	if body.Allowed == nil {
		refuse(w, http.StatusBadRequest, "the body must be like "+example)
		return
	}
	h.game.Permit(*body.Allowed)
	answer(w, http.StatusOK, body)
}

// shutdown answers what the operator ordered.
func (h handlers) shutdown(w http.ResponseWriter, r *http.Request) {
	if now, ok := h.restored(w, r); ok {
		answer(w, http.StatusOK, orders{now.LastAnswer.Shutdown, now.LastAnswer.Drain})
	}
}

// setShutdown is the SDK's Shutdown, and its undoing.
func (h handlers) setShutdown(w http.ResponseWriter, r *http.Request) {
	var body wish
	if !read(w, r, &body, `{"shutdown":true}`) {
		return
	}
	if body.Shutdown == nil || *body.Shutdown {
		h.game.Shutdown()
	} else if err := h.game.TakeBackShutdown(); err != nil {
		failed(w, err)
		return
	}
	answer(w, http.StatusOK, empty{})
}

func (h handlers) players(w http.ResponseWriter, r *http.Request) {
	if now, ok := h.restored(w, r); ok {
		answerPlayers(w, now)
	}
}

func answerPlayers(w http.ResponseWriter, snapshot game.Snapshot) {
	now := snapshot.Game.Players
	if now == nil {
		now = &v1alpha1.PlayersStatus{Capacity: snapshot.Capacity}
	}
	current, capacity := whole(now.Current), whole(now.Capacity)
	answer(w, http.StatusOK, players{&current, &capacity})
}

func (h handlers) setPlayers(w http.ResponseWriter, r *http.Request) {
	const example = `{"current":3,"capacity":20}`
	var body players
	if !read(w, r, &body, example) {
		return
	}
	if body.Current == nil {
		refuse(w, http.StatusBadRequest, "the body must be like "+example+"; capacity may be left out")
		return
	}
	if err := h.game.SetPlayers(int64(*body.Current), (*int64)(body.Capacity)); err != nil {
		failed(w, err)
		return
	}
	answerPlayers(w, h.game.Snapshot())
}

func (h handlers) health(w http.ResponseWriter, _ *http.Request) {
	now := h.game.Snapshot().Game
	if now.State == v1alpha1.GameUnhealthy {
		answer(w, http.StatusServiceUnavailable, health{false, now.Message})
		return
	}
	answer(w, http.StatusOK, health{true, "nothing is wrong with the game"})
}

// ping is the SDK's Health: each call is a ping, whatever its body.
func (h handlers) ping(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, MaxBodyBytes)); err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "the body is too large for a ping")
		return
	}
	h.game.Ping()
	answer(w, http.StatusOK, empty{})
}
