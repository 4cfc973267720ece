package server

import (
	"encoding/json"
	"net/http"
	"time"
)

// Players is the document at /players.
type Players struct {
	Players struct {
		Online int64 `json:"online"`
	} `json:"players"`
}

// Stats is the document at /stats: bytes and datagrams of all sessions since
// the start.
type Stats struct {
	Server       string `json:"server"`
	Boot         string `json:"boot"`
	Started      int64  `json:"started"`
	Listening    int64  `json:"listening"`
	TCPAccepted  int64  `json:"tcpAccepted"`
	TCPOpen      int64  `json:"tcpOpen"`
	TCPBytesIn   int64  `json:"tcpBytesIn"`
	TCPBytesOut  int64  `json:"tcpBytesOut"`
	DatagramsIn  int64  `json:"datagramsIn"`
	DatagramsOut int64  `json:"datagramsOut"`
}

func (s *Server) handler(sidecar string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if s.listening.Load() == 0 {
			http.Error(w, "booting", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /players", func(w http.ResponseWriter, _ *http.Request) {
		var answer Players
		answer.Players.Online = s.counters.players(time.Now())
		writeJSON(w, answer)
	})
	mux.HandleFunc("PUT /players", func(w http.ResponseWriter, r *http.Request) {
		var wanted Players
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&wanted); err != nil {
			http.Error(w, `want {"players":{"online":N}}: `+err.Error(), http.StatusBadRequest)
			return
		}
		s.counters.setPlayers(&wanted.Players.Online)
		writeJSON(w, wanted)
	})
	mux.HandleFunc("DELETE /players", func(w http.ResponseWriter, _ *http.Request) {
		s.counters.setPlayers(nil)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, Stats{
			Server: s.id, Boot: s.boot, Started: s.started.UnixNano(), Listening: s.listening.Load(),
			TCPAccepted: s.counters.tcpAccepted.Load(), TCPOpen: s.counters.tcpOpen.Load(),
			TCPBytesIn: s.counters.tcpIn.Load(), TCPBytesOut: s.counters.tcpOut.Load(),
			DatagramsIn: s.counters.udpIn.Load(), DatagramsOut: s.counters.udpOut.Load(),
		})
	})
	mux.HandleFunc("POST /crash", func(w http.ResponseWriter, _ *http.Request) {
		// The answer goes first: a crash ends the process, and may be faster.
		w.WriteHeader(http.StatusNoContent)
		if err := http.NewResponseController(w).Flush(); err == nil {
			s.crash()
		}
	})
	mux.HandleFunc("POST /scale", scale)
	if sidecar != "" {
		mux.HandleFunc("/sdk/", forwardSDK(sidecar))
	}
	return mux
}

func writeJSON(w http.ResponseWriter, document any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document)
}
