package env

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"

	"dormouse.dev/dormouse/internal/dev/images"
)

// Debian's Minetest, a game over UDP.
const (
	minetestProgram = "/usr/lib/minetest/minetestserver"
	minetestData    = "/usr/share/games/minetest"
	// MinetestPort is where its server listens.
	MinetestPort = 30000
)

// Minetest puts Debian's Minetest server into an image on the local cluster's
// nodes, installing the package first where it is missing, and gives a game
// that runs it.
func (e *Env) Minetest(ctx context.Context, progress io.Writer) (Game, error) {
	if err := InstallDebian(ctx, "minetest-server", minetestProgram, progress); err != nil {
		return Game{}, err
	}
	files, err := images.Closure(ctx, minetestProgram, minetestData)
	if err != nil {
		return Game{}, err
	}
	maps.Copy(files, images.Base())
	files["/etc/minetest.conf"] = images.Bytes(nil, 0o644)
	spec := images.Spec{
		Ref:        "dormouse-minetest:dev",
		Entrypoint: []string{minetestProgram},
		User:       "65532:65532",
		Env:        []string{"HOME=/tmp"},
		Files:      files,
	}
	archive := filepath.Join(e.Repo, "bin", "images", "minetest.tar")
	fmt.Fprintf(progress, "building image %s\n", spec.Ref)
	if err := images.BuildAndSave(archive, spec); err != nil {
		return Game{}, err
	}
	if err := e.Cluster.LoadImage(ctx, archive); err != nil {
		return Game{}, err
	}
	return Game{
		Name: "minetest", Image: spec.Ref, UDP: []int32{MinetestPort},
		Args: []string{
			"--config", "/etc/minetest.conf", "--world", "/tmp/world", "--gameid", "minetest",
			"--port", fmt.Sprint(MinetestPort),
		},
	}, nil
}
