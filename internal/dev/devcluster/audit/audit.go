// Package audit reads what Dormouse's service accounts have asked the API server for, from the
// log that it writes by a policy of this package.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Namespace is the namespace whose service accounts the API server keeps
// a record of.
const Namespace = "dormouse-system"

// The record's bounds: a file of so many megabytes, and so many older ones.
const (
	FileMegabytes = "20"
	OldFiles      = "3"
)

// Policy records who asked for what, without the objects, for those whose
// rights a test judges, and nothing else.
func Policy() map[string]any {
	return map[string]any{
		"apiVersion": "audit.k8s.io/v1",
		"kind":       "Policy",
		"omitStages": []string{"RequestReceived"},
		"rules": []map[string]any{
			{"level": "Metadata", "userGroups": []string{"system:serviceaccounts:" + Namespace}},
			{"level": "None"},
		},
	}
}

// Entry is an answered request of a service account of [Namespace].
// A watch has one entry when it begins and one when it ends.
type Entry struct {
	// User is the account, as system:serviceaccount:NAMESPACE:NAME.
	User string
	// Pod is the name of the Pod whose token it was; empty for a token of no Pod.
	Pod string
	// Verb is RBAC's word for what was asked: list, patch, ...
	Verb string
	// Path is the request's, with its query.
	Path string
	// Group, Resource, Subresource, Namespace and Name are the object's; all
	// are empty for a path that is no object's.
	Group, Resource, Subresource, Namespace, Name string
	// Code is the HTTP status of the answer, and Message its sentence where the
	// answer was a refusal.
	Code    int
	Message string
	// Forbidden reports whether the account had no right to it.
	Forbidden bool
	// Received is when the request came.
	Received time.Time
}

// event is the part of an audit.k8s.io/v1 Event that matters here.
type event struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string              `json:"username"`
		Extra    map[string][]string `json:"extra"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	RequestReceived time.Time         `json:"requestReceivedTimestamp"`
	Annotations     map[string]string `json:"annotations"`
}

// Read reads what the service accounts of [Namespace] have asked for
// since a time, from a log and the older ones beside it. The record is bounded: what is long
// ago may be gone from it.
func Read(log string, since time.Time) ([]Entry, error) {
	if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("read the API server's audit log: there is none, the cluster was made without one: take it down (make down) and up again")
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(log), "*.log"))
	if err != nil {
		return nil, fmt.Errorf("find the API server's audit logs: %w", err)
	}
	var entries []Entry
	for _, file := range files {
		found, err := readFile(file)
		if err != nil {
			return nil, err
		}
		entries = append(entries, found...)
	}
	entries = slices.DeleteFunc(entries, func(e Entry) bool { return e.Received.Before(since) })
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Received.Compare(b.Received) })
	return entries, nil
}

func readFile(file string) ([]Entry, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // It was renamed, or was the oldest.
	}
	if err != nil {
		return nil, fmt.Errorf("open the API server's audit log: %w", err)
	}
	defer f.Close()
	var entries []Entry
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // The last line may not be written to its end yet.
		}
		entries = append(entries, Entry{
			User: e.User.Username, Pod: strings.Join(e.User.Extra["authentication.kubernetes.io/pod-name"], ","), Verb: e.Verb, Path: e.RequestURI,
			Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource,
			Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
			Code: e.ResponseStatus.Code, Message: e.ResponseStatus.Message,
			Forbidden: e.Annotations["authorization.k8s.io/decision"] == "forbid",
			Received:  e.RequestReceived,
		})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the API server's audit log %s: %w", filepath.Base(file), err)
	}
	return entries, nil
}
