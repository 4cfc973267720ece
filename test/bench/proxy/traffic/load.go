// Package traffic is both ends of what a proxy relays: the clients that load it, and the server
// behind it. Each is a process of its own, and uses the kernel's own interface, because what they
// cost is taken from the proxy: all have the same few processors.
package traffic

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	// LoadRole is the argument of a process that does [Load].
	LoadRole = "load"
	// pingBytes and echoBytes are the sizes of a TCP and a UDP echo.
	pingBytes = 64
	echoBytes = 100
	// patience bounds what should happen at once.
	patience = 20 * time.Second
)

// Job is what one process of clients does. Port is the proxy's.
type Job struct {
	Kind string `json:"kind"`
	Port int    `json:"port"`
	// Count is how many connections or flows there are.
	Count int `json:"count"`
	// Rate is of a paced job, a second.
	Rate     float64       `json:"rate"`
	Duration time.Duration `json:"duration"`
}

// Outcome is what came of it: units of work that were done within Seconds, the
// lost ones, and how long each took where that is asked for.
type Outcome struct {
	Done    int64     `json:"done"`
	Lost    int64     `json:"lost"`
	Seconds float64   `json:"seconds"`
	Took    Histogram `json:"took"`
}

// player is a kind of job. Prepare does what isn't measured, such as connecting.
type player interface {
	prepare() error
	play() (Outcome, error)
}

func newPlayer(j Job) (player, error) {
	p, err := newPoller()
	if err != nil {
		return nil, err
	}
	switch j.Kind {
	case "download":
		return &bulk{Job: j, poller: p}, nil
	case "upload":
		return &bulk{Job: j, poller: p, up: true}, nil
	case "ping":
		return &pings{Job: j, poller: p}, nil
	case "setup":
		return &setups{Job: j, poller: p}, nil
	case "udp":
		return &echoes{Job: j, poller: p}, nil
	case "hold":
		return &held{Job: j, poller: p}, nil
	case "idle":
		return &held{Job: j, poller: p, answered: true}, nil
	}
	return nil, fmt.Errorf("there is no job of the kind %q", j.Kind)
}

// Load does one job: it prepares it, says so, plays when it is told to, tells what
// came of it, and keeps its connections until its input ends.
func Load(in io.Reader, out io.Writer) error {
	lines := json.NewDecoder(bufio.NewReader(in))
	var j Job
	if err := lines.Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	p, err := newPlayer(j)
	if err != nil {
		return err
	}
	if err := p.prepare(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return fmt.Errorf("say that all is prepared: %w", err)
	}
	var begin bool
	switch err := lines.Decode(&begin); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("wait for the start: %w", err)
	}
	o, err := p.play()
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(o); err != nil {
		return fmt.Errorf("tell what came of it: %w", err)
	}
	if err := lines.Decode(&begin); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("wait for the end: %w", err)
	}
	return nil
}
