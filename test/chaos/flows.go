package chaos

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"dormouse.dev/dormouse/internal/dev/devcluster"
)

// eventTime is how long an event may take to be read.
const eventTime = time.Second

// flow is a player's socket as the node sees it.
type flow struct {
	network string
	port    string
}

// flows follows the connection table of the node that players come in by:
// whatever kube-proxy decides for a player is told there, once, when it is
// decided.
type flows struct {
	cmd *exec.Cmd

	mu   sync.Mutex
	hops map[flow][]netip.Addr
	// err is why nothing more is known.
	err  error
	done chan struct{}
}

// follow starts to watch. The context's end ends it.
func follow(ctx context.Context, c *devcluster.Cluster) (*flows, error) {
	f := &flows{hops: map[flow][]netip.Addr{}, done: make(chan struct{})}
	// A large buffer, because an event that does not fit is lost.
	f.cmd = exec.CommandContext(ctx, "conntrack", "--event", "--event-mask", "NEW",
		"--orig-src", c.PlayerAddrs()[0].String(), "--buffer-size", "8388608")
	err := c.InNode(1, func() error {
		out, err := f.cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := f.cmd.Start(); err != nil {
			return err
		}
		go f.read(ctx, bufio.NewScanner(out))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("follow the connection table of node 1: %w", err)
	}
	return f, nil
}

func (f *flows) read(ctx context.Context, lines *bufio.Scanner) {
	defer close(f.done)
	for lines.Scan() {
		if key, hop, ok := parseFlow(lines.Text()); ok {
			f.mu.Lock()
			if !slices.Contains(f.hops[key], hop) {
				f.hops[key] = append(f.hops[key], hop)
			}
			f.mu.Unlock()
		}
	}
	err := f.cmd.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() == nil {
		f.err = fmt.Errorf("conntrack ended: %w", err)
	}
}

// parseFlow reads a line of conntrack: the addresses and ports of the way there,
// and then those of the way back, which begin at the pod that was chosen.
func parseFlow(line string) (flow, netip.Addr, bool) {
	var key flow
	var sources []string
	for word := range strings.FieldsSeq(line) {
		name, value, ok := strings.Cut(word, "=")
		switch {
		case word == "tcp" || word == "udp":
			key.network = word
		case ok && name == "src":
			sources = append(sources, value)
		case ok && name == "sport" && key.port == "":
			key.port = value
		}
	}
	if len(sources) != 2 || key.network == "" || key.port == "" {
		return flow{}, netip.Addr{}, false
	}
	hop, err := netip.ParseAddr(sources[1])
	return key, hop, err == nil
}

// take gives the hops of a socket and forgets them: its port is somebody else's
// later. It waits for the first one, since a connection may be refused before
// the table's event of it is read.
func (f *flows) take(ctx context.Context, key flow) []netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, eventTime)
	defer cancel()
	tick := time.NewTicker(eventTime / 50)
	defer tick.Stop()
	for {
		if hops := f.forget(key); len(hops) > 0 {
			return hops
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// forget gives what is known of a socket, for the last time.
func (f *flows) forget(key flow) []netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	hops := f.hops[key]
	delete(f.hops, key)
	return hops
}

// failure is why nothing more is known, or nil.
func (f *flows) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
