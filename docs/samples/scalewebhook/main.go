// Command scalewebhook is a webhook for GameAutoscalers, to copy and change: what it decides is in
// wish and servers. It keeps a fifth of the player slots free, or of the servers where it is asked
// in Agones' format, which doesn't say who plays. It is told all it needs in each question, so
// that any number of it may run, without rights in the cluster and without memory.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	// freePercent is how much is to be free.
	freePercent = 20
	// maxReplicas is the most that Dormouse takes for an answer.
	maxReplicas = 10000
	// maxBody bounds a question, in bytes. Agones' format has the target's labels and annotations.
	maxBody = 64 << 10
	// patience bounds reading a question, and answering it.
	patience = 5 * time.Second
	// idle is longer than the 90 s for which Dormouse keeps a connection for its next question.
	idle = 2 * time.Minute
)

// question is either format's: Agones' has a request and nothing else.
type question struct {
	Ready    int64   `json:"ready_replicas"`
	Players  int64   `json:"players"`
	Capacity int64   `json:"capacity"`
	Agones   *review `json:"request"`
}

type review struct {
	UID    string `json:"uid"`
	Status struct {
		Reserved  int64 `json:"reservedReplicas"`
		Allocated int64 `json:"allocatedReplicas"`
	} `json:"status"`
}

// wish is how many servers have room for the players and a fifth more; false keeps what there is,
// because no server has told yet how many players it has room for.
func wish(q question) (replicas int64, scale bool) {
	if q.Ready < 1 || q.Capacity < 1 {
		return 0, false
	}
	return bounded(q.Players*q.Ready*100, q.Capacity*(100-freePercent)), true
}

// servers is how many there are to be for a fifth to be free.
func servers(r review) int64 {
	return bounded((r.Status.Allocated+r.Status.Reserved)*100, 100-freePercent)
}

// bounded is a/b, rounded up, and a number that may be answered.
func bounded(a, b int64) int64 { return min(max(1, (a+b-1)/b), maxReplicas) }

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /scale", func(w http.ResponseWriter, r *http.Request) {
		var q question
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&q); err != nil {
			// Whatever isn't 200 changes nothing, and its begin is in the autoscaler's status.
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var answer map[string]any
		if q.Agones != nil {
			answer = map[string]any{"response": map[string]any{"uid": q.Agones.UID, "scale": true, "replicas": servers(*q.Agones)}}
		} else {
			replicas, scale := wish(q)
			answer = map[string]any{"scale": scale, "desired_replicas": replicas}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // who asked may be gone
	})
	return mux
}

func main() {
	listen := flag.String("listen", ":8000", "address of /scale and /healthz")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	server := &http.Server{
		Addr: *listen, Handler: handler(), MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: idle,
	}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*patience)
		defer cancel()
		ended <- server.Shutdown(within) // questions that are here are answered
	}()
	slog.Info("listening", "address", *listen)
	err := server.ListenAndServe()
	if errors.Is(err, http.ErrServerClosed) {
		err = <-ended
	}
	if err != nil {
		slog.Error("serve", "error", err)
		os.Exit(1)
	}
}
