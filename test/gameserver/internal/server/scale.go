package server

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// scale is an autoscaler's webhook that always wants what the query says: replicas, or a status
// that is none of an answer. It speaks both formats, as it is asked.
func scale(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if status, err := strconv.Atoi(query.Get("status")); err == nil {
		w.WriteHeader(status)
		return
	}
	var question struct {
		// GameName and Namespace are of Dormouse's format, and Request is of Agones'.
		GameName  string `json:"game_name"`
		Namespace string `json:"namespace"`
		Request   *struct {
			UID       string `json:"uid"`
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"request"`
	}
	replicas, err := strconv.Atoi(query.Get("replicas"))
	if err == nil {
		err = json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&question)
	}
	switch {
	case err != nil:
		http.Error(w, "want ?replicas=N and a question: "+err.Error(), http.StatusBadRequest)
	case question.Request != nil && question.Request.UID != "" && question.Request.Name != "" && question.Request.Namespace != "":
		writeJSON(w, map[string]any{
			"request":  question.Request,
			"response": map[string]any{"uid": question.Request.UID, "scale": true, "replicas": replicas},
		})
	case question.GameName != "" && question.Namespace != "":
		writeJSON(w, map[string]any{"scale": true, "desired_replicas": replicas})
	default:
		http.Error(w, "this is a question of neither format", http.StatusBadRequest)
	}
}
