// Package minetest has Debian's Minetest for tests: the server, a game over UDP, in an image, and the
// client, whose players dig without a screen.
package minetest

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"path/filepath"

	"dormouse.dev/dormouse/internal/dev/images"
	"dormouse.dev/dormouse/test/env"
)

// Port is where the server listens.
const Port = 30000

const (
	program = "/usr/lib/minetest/minetestserver"
	data    = "/usr/share/games/minetest"
	// mod is a directory of the game's, whose mods are always loaded.
	mod = data + "/games/minetest_game/mods/dormouse"
)

// conf makes a flat world whose ground a hand digs at once, lets the mods of clients look at it, and
// lets the server's mod call the sidecar.
const conf = `mg_name = flat
mg_flags = nocaves,nodungeons,nodecorations
mgflat_spflags = nolakes,nohills,nocaverns
creative_mode = true
enable_damage = false
csm_restriction_flags = 0
secure.http_mods = dormouse
`

//go:embed dormouse/init.lua
var serverMod []byte

// Image puts the server into an image on the local cluster's nodes, installing Debian's package first
// where it is missing, and gives a game that runs it.
func Image(ctx context.Context, e *env.Env, progress io.Writer) (env.Game, error) {
	if err := env.InstallDebian(ctx, "minetest-server", program, progress); err != nil {
		return env.Game{}, err
	}
	files, err := images.Closure(ctx, program, data)
	if err != nil {
		return env.Game{}, err
	}
	maps.Copy(files, images.Base())
	files["/etc/minetest.conf"] = images.Bytes([]byte(conf), 0o644)
	files[mod+"/mod.conf"] = images.Bytes([]byte("name = dormouse\n"), 0o644)
	files[mod+"/init.lua"] = images.Bytes(serverMod, 0o644)
	spec := images.Spec{
		Ref:        "dormouse-minetest:dev",
		Entrypoint: []string{program},
		User:       "65532:65532",
		Env:        []string{"HOME=/tmp"},
		Files:      files,
	}
	archive := filepath.Join(e.Repo, "bin", "images", "minetest.tar")
	unlock, err := env.Lock(archive + ".lock")
	if err != nil {
		return env.Game{}, err
	}
	defer unlock()
	fmt.Fprintf(progress, "building image %s\n", spec.Ref)
	if err := images.BuildAndSave(archive, spec); err != nil {
		return env.Game{}, err
	}
	if err := e.Cluster.LoadImage(ctx, archive); err != nil {
		return env.Game{}, err
	}
	return env.Game{Name: "minetest", Image: spec.Ref, UDP: []int32{Port}, Args: Args("/tmp/world")}, nil
}

// Args are the arguments of a server that keeps its world in a directory.
func Args(world string) []string {
	return []string{"--config", "/etc/minetest.conf", "--world", world, "--gameid", "minetest", "--port", fmt.Sprint(Port)}
}
