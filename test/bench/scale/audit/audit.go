// Package audit reads what the API server says in its audit log of who asked it for what.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
)

// Log reads an audit log once: each read goes on where the last one ended.
type Log struct {
	// File is where it is.
	File   string
	offset int64
	// open are the watches that have begun and not ended, by user agent and resource.
	open map[string]map[string]int
}

// Requests are what was asked, by user agent, and there by verb and resource such as "patch
// servers/status".
type Requests map[string]map[string]*Answers

// Answers counts what a kind of request was answered.
type Answers struct {
	All       int `json:"all"`
	Conflicts int `json:"conflicts,omitempty"`
	Failed    int `json:"failed,omitempty"`
}

// entry is the part of an audit.k8s.io/v1 Event that matters here.
type entry struct {
	Stage     string `json:"stage"`
	Verb      string `json:"verb"`
	UserAgent string `json:"userAgent"`
	ObjectRef *struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// Next counts what was asked since the last call.
func (a *Log) Next() (_ Requests, err error) {
	f, err := os.Open(a.File)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Seek(a.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("find where the audit log was read to: %w", err)
	}
	all := Requests{}
	lines := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil // the last line may not be written to its end yet
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		a.offset += int64(len(line))
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		all.add(e)
		a.follow(e)
	}
}

// follow takes in a watch that begins or ends.
func (a *Log) follow(e entry) {
	if e.Verb != "watch" || e.ObjectRef == nil {
		return
	}
	agent := e.agent()
	if a.open == nil {
		a.open = map[string]map[string]int{}
	}
	if a.open[agent] == nil {
		a.open[agent] = map[string]int{}
	}
	switch e.Stage {
	case "ResponseStarted":
		a.open[agent][e.ObjectRef.Resource]++
	case "ResponseComplete":
		a.open[agent][e.ObjectRef.Resource]--
	}
}

// Watches are those of an agent that are open, by resource.
func (a *Log) Watches(agent string) map[string]int {
	open := maps.Clone(a.open[agent])
	maps.DeleteFunc(open, func(_ string, n int) bool { return n == 0 })
	return open
}

// agent is the name of the program that asked.
func (e *entry) agent() string {
	name, _, _ := strings.Cut(e.UserAgent, "/")
	return name
}

func (r Requests) add(e entry) {
	// A watch has an entry when it begins and one when it ends.
	begun := e.Stage == "ResponseStarted"
	if (e.Verb == "watch") != begun || e.ObjectRef == nil {
		return
	}
	agent := e.agent()
	kind := e.Verb + " " + e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		kind += "/" + e.ObjectRef.Subresource
	}
	if r[agent] == nil {
		r[agent] = map[string]*Answers{}
	}
	counted := r[agent][kind]
	if counted == nil {
		counted = &Answers{}
		r[agent][kind] = counted
	}
	counted.All++
	switch {
	case e.ResponseStatus.Code == 409:
		counted.Conflicts++
	case e.ResponseStatus.Code >= 400:
		counted.Failed++
	}
}

// Sum counts an agent's requests that are writes, or that aren't, and its conflicts, without
// those for leases.
func (r Requests) Sum(agent string) (writes, reads, conflicts int) {
	for kind, counted := range r[agent] {
		verb, resource, _ := strings.Cut(kind, " ")
		if resource == "leases" {
			continue
		}
		switch verb {
		case "get", "list", "watch":
			reads += counted.All
		default:
			writes += counted.All
		}
		conflicts += counted.Conflicts
	}
	return writes, reads, conflicts
}

// Merge adds others.
func (r Requests) Merge(others Requests) {
	for agent, kinds := range others {
		if r[agent] == nil {
			r[agent] = map[string]*Answers{}
		}
		for kind, more := range kinds {
			counted := r[agent][kind]
			if counted == nil {
				counted = &Answers{}
				r[agent][kind] = counted
			}
			counted.All += more.All
			counted.Conflicts += more.Conflicts
			counted.Failed += more.Failed
		}
	}
}
