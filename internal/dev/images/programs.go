package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// DevTag is the tag of the images that are built for the local cluster.
const DevTag = "dev"

// Program runs in a container. Of the project's own the Dockerfiles and config/ say the same; a
// test compares them.
type Program struct {
	// Name is the binary's name, which is at the image's root.
	Name string
	// Package is its main package, relative to the project's root, or to that of its module.
	Package string
	// Module is the directory of its module, relative to the project's root; empty for the
	// project's own.
	Module string
	// Image is its image's name, without registry and tag.
	Image string
	// Dockerfile builds the image for release; empty for what is never released.
	Dockerfile string
}

// Programs are all programs of the project that have an image.
func Programs() []Program {
	return []Program{
		{Name: "operator", Package: "./operator", Image: "dormouse-operator", Dockerfile: "Dockerfile.operator"},
		{Name: "resolver", Package: "./resolver", Image: "dormouse-resolver", Dockerfile: "Dockerfile.resolver"},
		{Name: "sidecar", Package: "./sidecar", Image: "dormouse-sidecar", Dockerfile: "Dockerfile.sidecar"},
		{Name: "gameserver", Package: "./test/gameserver", Image: "dormouse-testserver"},
	}
}

// Ref is the image's reference below a prefix such as "registry.example/games",
// which may be empty.
func (p Program) Ref(prefix, tag string) string {
	if prefix != "" {
		prefix += "/"
	}
	return prefix + p.Image + ":" + tag
}

// Spec is the program's image, with the binary at that path of this machine.
func (p Program) Spec(ref, binary string) Spec {
	files := Base()
	files["/"+p.Name] = FromHost(binary)
	return Spec{
		Ref:        ref,
		Entrypoint: []string{"/" + p.Name},
		User:       "65532:65532",
		Files:      files,
	}
}

// Compile builds the program as a static binary for Linux. repo is the project's
// root. An unchanged program gives the same bytes.
func (p Program) Compile(ctx context.Context, repo, binary string) error {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return fmt.Errorf("compile %s: %w", p.Name, err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", binary, p.Package)
	cmd.Dir = filepath.Join(repo, p.Module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w\n%s", p.Name, err, bytes.TrimSpace(output))
	}
	return nil
}

// Built is a program's image on this machine's disk.
type Built struct {
	Program
	// Ref is the image's full reference.
	Ref string
	// Archive is the path of its archive.
	Archive string
}

// BuildPrograms compiles the programs into bin/programs of the project and builds
// their images into bin/images. An empty tag is one derived from the binary: a
// cluster that is told of it runs just that one.
func BuildPrograms(ctx context.Context, repo, prefix, tag string, programs []Program, progress io.Writer) ([]Built, error) {
	built := make([]Built, 0, len(programs))
	for _, p := range programs {
		binary := filepath.Join(repo, "bin", "programs", p.Name)
		archive := filepath.Join(repo, "bin", "images", p.Name+".tar")
		for _, file := range []string{binary, archive} {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				return nil, fmt.Errorf("build image of %s: %w", p.Name, err)
			}
		}
		if err := p.Compile(ctx, repo, binary); err != nil {
			return nil, err
		}
		tag := tag
		if tag == "" {
			var err error
			if tag, err = contentTag(binary); err != nil {
				return nil, err
			}
		}
		ref := p.Ref(prefix, tag)
		fmt.Fprintf(progress, "building image %s\n", ref)
		if err := BuildAndSave(archive, p.Spec(ref, binary)); err != nil {
			return nil, err
		}
		built = append(built, Built{Program: p, Ref: ref, Archive: archive})
	}
	return built, nil
}

// contentTag is a tag that differs between different binaries.
func contentTag(binary string) (string, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return "", fmt.Errorf("derive a tag: %w", err)
	}
	sum := sha256.Sum256(content)
	return DevTag + "-" + hex.EncodeToString(sum[:6]), nil
}
