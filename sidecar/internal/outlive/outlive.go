// Package outlive waits for the end of the game's process. kubelet tells the game and the sidecar
// to end at the same time, and a game that saves its world is still counted and still has its SDK.
//
// The containers of a Pod share their network, so the kernel's tables show the sidecar the sockets
// of the game.
package outlive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
)

// period is how often the kernel's tables are read. No event says that a socket is closed.
const period = 50 * time.Millisecond

// Port is a port that the game opens.
type Port struct {
	Number   int
	Protocol corev1.Protocol
}

// Game is what shows that the game runs: it has one of its ports open, or a connection to one of
// the sidecar's ports for the SDK.
type Game struct {
	Ports    []Port
	SDKPorts []int
}

// socket is a row of the kernel's tables.
type socket struct {
	protocol      corev1.Protocol
	local, remote int
	// inode is 0 for one that no process has any more.
	inode uint64
}

// Wait waits until nothing shows that the game runs, or the context ends. It doesn't wait where
// the kernel's tables can't be read.
func (g *Game) Wait(ctx context.Context) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		runs, err := g.runs()
		if err != nil || !runs {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// runs reports whether something shows that the game runs.
func (g *Game) runs() (bool, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return false, fmt.Errorf("look for the game's sockets: %w", err)
	}
	own, err := ownSockets(proc)
	if err != nil {
		return false, fmt.Errorf("look for the sidecar's own sockets: %w", err)
	}
	sockets, err := socketsOf(proc)
	if err != nil {
		return false, fmt.Errorf("look for the game's sockets: %w", err)
	}
	return slices.ContainsFunc(sockets, func(s socket) bool {
		return s.inode != 0 && !own[fmt.Sprintf("socket:[%d]", s.inode)] && g.has(s)
	}), nil
}

// has reports whether a socket that isn't the sidecar's is the game's.
func (g *Game) has(s socket) bool {
	return slices.Contains(g.Ports, Port{s.local, s.protocol}) || s.protocol == corev1.ProtocolTCP && slices.Contains(g.SDKPorts, s.remote)
}

// ownSockets are the sidecar's sockets, as the kernel names them among a process's open files.
func ownSockets(proc procfs.FS) (map[string]bool, error) {
	self, err := proc.Self()
	if err != nil {
		return nil, err
	}
	files, err := self.FileDescriptorTargets()
	if err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for _, file := range files {
		if strings.HasPrefix(file, "socket:") {
			own[file] = true
		}
	}
	return own, nil
}

// socketsOf are all sockets of the Pod.
func socketsOf(proc procfs.FS) (list []socket, _ error) {
	// The kernel's text is slow where there are very many sockets, which a Pod hasn't.
	for _, read := range []func() (procfs.NetTCP, error){proc.NetTCP, proc.NetTCP6} { //nolint:staticcheck // deprecated for that
		rows, err := read()
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel may have no IPv6
			return nil, err
		}
		for _, row := range rows {
			list = append(list, socket{corev1.ProtocolTCP, int(row.LocalPort), int(row.RemPort), row.Inode}) //nolint:gosec // ports
		}
	}
	for _, read := range []func() (procfs.NetUDP, error){proc.NetUDP, proc.NetUDP6} {
		rows, err := read()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, row := range rows {
			list = append(list, socket{corev1.ProtocolUDP, int(row.LocalPort), int(row.RemPort), row.Inode}) //nolint:gosec // ports
		}
	}
	return list, nil
}
