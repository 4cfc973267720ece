package minetest

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"dormouse.dev/dormouse/test/env"
)

const clientProgram = "/usr/games/minetest"

// clientConf lets Debian's client play without a screen, with its own random input, which is meant for
// tests.
const clientConf = `video_driver = null
enable_sound = false
enable_shaders = false
random_input = true
enable_client_modding = true
viewing_range = 40
`

//go:embed player/init.lua
var clientMod string

// Position is a block's.
type Position [3]int

// Stay is what a player saw and did from joining to leaving.
type Stay struct {
	// Blocks are the blocks at the places that the player looked at.
	Blocks map[Position]string
	// Dug is where the player dug a block.
	Dug Position
	// Heard is what the chat said.
	Heard []string
}

// Player is who plays with Debian's client.
type Player struct {
	env  *env.Env
	home string
	name string
}

// NewPlayer makes a player whose client keeps its files in a directory, and installs the client first
// where it is missing.
func NewPlayer(ctx context.Context, e *env.Env, home, name string, progress io.Writer) (*Player, error) {
	if err := env.InstallDebian(ctx, "minetest", clientProgram, progress); err != nil {
		return nil, err
	}
	return &Player{env: e, home: home, name: name}, nil
}

// Dig has the player join at an address, look at places, dig one block below where everybody begins, and
// leave once the server has got that.
func (p *Player) Dig(ctx context.Context, address string, look ...Position) (v Stay, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return v, fmt.Errorf("join a Minetest server: %w", err)
	}
	if err := p.install(look); err != nil {
		return v, err
	}
	cmd := exec.CommandContext(ctx, clientProgram, "--config", filepath.Join(p.home, "client.conf"),
		"--go", "--address", host, "--port", port, "--name", p.name)
	cmd.Env = append(os.Environ(), "HOME="+p.home)
	out, err := cmd.StderrPipe()
	if err != nil {
		return v, fmt.Errorf("read what a player sees: %w", err)
	}
	if err := p.env.Cluster.InPlayer(cmd.Start); err != nil {
		return v, fmt.Errorf("start a player: %w", err)
	}
	v, err = watch(out)
	// Without a screen the client crashes as it ends, once it has told the server that it leaves.
	_ = cmd.Wait()
	return v, err
}

// install writes the client's configuration and the mod that plays.
func (p *Player) install(look []Position) error {
	wanted, err := json.Marshal(look)
	if err != nil {
		return fmt.Errorf("write a player's places: %w", err)
	}
	mods := filepath.Join(p.home, ".minetest", "clientmods")
	places := strings.NewReplacer("[", "{", "]", "}", "null", "{}").Replace(string(wanted))
	for path, content := range map[string]string{
		filepath.Join(p.home, "client.conf"):      clientConf,
		filepath.Join(mods, "mods.conf"):          "load_mod_player = true\n",
		filepath.Join(mods, "player", "mod.conf"): "name = player\n",
		filepath.Join(mods, "player", "init.lua"): "local places = " + places + "\n" + clientMod,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make a player's files: %w", err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("write a player's files: %w", err)
		}
	}
	return nil
}

// watch reads what the mod tells until the client has ended.
func watch(out io.Reader) (Stay, error) {
	v := Stay{Blocks: map[Position]string{}}
	done := false
	var log []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		_, line, ok := strings.Cut(lines.Text(), "PLAYER ")
		if !ok {
			log = append(log, lines.Text())
			continue
		}
		var t struct {
			Place, Dug *[3]float64
			Block      string
			Heard      *string
			Done       bool
		}
		if err := json.Unmarshal([]byte(line), &t); err != nil {
			return v, fmt.Errorf("read what a player sees: %w: %s", err, line)
		}
		switch {
		case t.Place != nil:
			v.Blocks[position(*t.Place)] = t.Block
		case t.Dug != nil:
			v.Dug = position(*t.Dug)
		case t.Heard != nil:
			v.Heard = append(v.Heard, *t.Heard)
		case t.Done:
			done = true
		}
	}
	if !done {
		return v, fmt.Errorf("a player's client ended before the player had dug, after %v: %s", v, strings.Join(log, "\n"))
	}
	return v, nil
}

func position(p [3]float64) Position { return Position{int(p[0]), int(p[1]), int(p[2])} }
