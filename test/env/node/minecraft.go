package node

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"dormouse.dev/dormouse/internal/dev/images"
	"dormouse.dev/dormouse/test/env"
)

// MinecraftPort is where the server of [Minecraft] listens.
const MinecraftPort = 25565

//go:embed minecraft/server.js
var minecraftServer []byte

//go:embed minecraft/world.js
var minecraftWorld []byte

// unneeded is how the names of npm packages' files begin that the server doesn't load: three quarters
// of what is installed.
var unneeded = []string{
	"/minecraft-data/minecraft-data/data/bedrock/0.", "/minecraft-data/minecraft-data/data/bedrock/1.",
	"/typescript/", "/@types/", "/bedrock-protocol/", "/raknet-native/", "/es-abstract/",
}

// Minecraft puts a Minecraft server of npm's into an image on the local cluster's nodes, and returns
// the image's name and the packages, for [MinecraftJoin].
func Minecraft(ctx context.Context, e *env.Env, progress io.Writer) (image, modules string, err error) {
	modules, err = Install(ctx, filepath.Join(e.Repo, "test", "probes", "node"), progress)
	if err != nil {
		return "", "", err
	}
	program, err := exec.LookPath("node")
	if err != nil {
		return "", "", fmt.Errorf("find Node.js: %w", err)
	}
	found, err := images.Closure(ctx, program, modules)
	if err != nil {
		return "", "", err
	}
	const inside = "/node_modules" // some packages are found by no other name
	files := images.Base()
	files["/server.js"] = images.Bytes(minecraftServer, 0o644)
	files["/world.js"] = images.Bytes(minecraftWorld, 0o644)
	for path, file := range found {
		rest, isModule := strings.CutPrefix(path, modules)
		switch {
		case !isModule:
			files[path] = file
		case !slices.ContainsFunc(unneeded, func(begin string) bool { return strings.HasPrefix(rest, begin) }):
			files[inside+rest] = file
		}
	}
	spec := images.Spec{
		Ref: "dormouse-minecraft:dev", Entrypoint: []string{program, "/server.js"}, User: "65532:65532",
		Env: []string{"NODE_PATH=" + inside, "HOME=/tmp"}, Files: files,
	}
	archive := filepath.Join(e.Repo, "bin", "images", "minecraft.tar")
	unlock, err := env.Lock(archive + ".lock")
	if err != nil {
		return "", "", err
	}
	defer unlock()
	fmt.Fprintf(progress, "building image %s\n", spec.Ref)
	if err := images.BuildAndSave(archive, spec); err != nil {
		return "", "", err
	}
	return spec.Ref, modules, e.Cluster.LoadImage(ctx, archive)
}

// Joining is how a login ended: with Joined, or with the reason that the player read.
type Joining struct {
	Joined        bool
	Reason, Error string
}

// MinecraftJoin logs in at an address as a player does who typed host.
func MinecraftJoin(ctx context.Context, e *env.Env, modules, address, host, name string) (how Joining, err error) {
	ip, port, ok := strings.Cut(address, ":")
	if _, err := strconv.Atoi(port); !ok || err != nil {
		return how, fmt.Errorf("%q is no IPv4 address with a port", address)
	}
	var stdout, stderr strings.Builder
	script := filepath.Join(e.Repo, "test", "env", "node", "minecraft", "player.js")
	cmd := Command(ctx, modules, script, ip, port, host, name)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := e.Cluster.InPlayer(cmd.Start); err != nil {
		return how, fmt.Errorf("start a player: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return how, fmt.Errorf("play as %s: %w\n%s", name, err, stderr.String())
	}
	if err := json.Unmarshal([]byte(stdout.String()), &how); err != nil {
		return how, fmt.Errorf("read how %s fared: %w: %q", name, err, stdout.String())
	}
	return how, nil
}
