package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"dormouse.dev/dormouse/test/env"
)

// WorldCommand is what the container of [Minecraft]'s image runs for a server that keeps its world
// in a directory.
func WorldCommand(dir string) ([]string, error) {
	program, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("find Node.js: %w", err)
	}
	return []string{program, "/world.js", dir}, nil
}

// Miner is a player in the world of such a server.
type Miner struct {
	// Heights are those of the first columns of the world as the player found it.
	Heights []int

	cmd    *exec.Cmd
	leave  io.Closer
	stderr strings.Builder
}

// Mine logs in at an address, as player does, and digs the highest block of a column; of none where
// the column is below 0. The player stays until [Miner.Leave].
func Mine(ctx context.Context, e *env.Env, modules, address string, column int) (*Miner, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("read the address of a world: %w", err)
	}
	m := &Miner{}
	m.cmd = Command(ctx, modules, filepath.Join(e.Repo, "test", "env", "node", "minecraft", "miner.js"), host, port, "miner", strconv.Itoa(column))
	m.cmd.Stderr = &m.stderr
	stdin, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a miner: %w", err)
	}
	m.leave = stdin
	stdout, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a miner: %w", err)
	}
	if err := e.Cluster.InPlayer(m.cmd.Start); err != nil {
		return nil, fmt.Errorf("start a miner: %w", err)
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &m.Heights)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read what a miner found: %w: %q", err, line), m.Leave())
	}
	return m, nil
}

// Leave ends the player's session, and fails where it had ended before.
func (m *Miner) Leave() error {
	_ = m.leave.Close()
	if err := m.cmd.Wait(); err != nil {
		return fmt.Errorf("mine: %w\n%s", err, m.stderr.String())
	}
	return nil
}
