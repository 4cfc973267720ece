package devcluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"dormouse.dev/dormouse/internal/dev/devcluster/binaries"
	"dormouse.dev/dormouse/internal/dev/images"
)

const (
	pauseRef   = "dormouse.dev/devcluster/pause:1"
	corednsRef = "dormouse.dev/devcluster/coredns:" + binaries.CoreDNSVersion
)

// ownImages are the images that the cluster itself runs.
func (c *Cluster) ownImages() map[string]images.Spec {
	spec := func(ref, program string) images.Spec {
		return images.Spec{
			Ref: ref, Entrypoint: []string{"/" + program}, User: "65532:65532",
			Files: map[string]images.File{"/" + program: images.FromHost(c.binary(program))},
		}
	}
	return map[string]images.Spec{"pause": spec(pauseRef, "pause"), "coredns": spec(corednsRef, "coredns"), "volume": spec(volumeRef, "volume")}
}

func (c *Cluster) archive(program string) string {
	return filepath.Join(c.BinDir, "images", program+".tar")
}

func (c *Cluster) imageArchives() []string {
	return []string{c.archive("pause"), c.archive("coredns"), c.archive("volume")}
}

// buildImages builds those images whose binary is newer.
func (c *Cluster) buildImages() error {
	for program, spec := range c.ownImages() {
		binary, err := os.Stat(c.binary(program))
		if err != nil {
			return fmt.Errorf("find binary of image %s: %w", spec.Ref, err)
		}
		archive, err := os.Stat(c.archive(program))
		if err == nil && archive.ModTime().After(binary.ModTime()) {
			continue
		}
		if err := images.BuildAndSave(c.archive(program), spec); err != nil {
			return err
		}
	}
	return nil
}

// LoadImage imports image archives, as images.Save and "docker save" write
// them, into every node. Pods that use one say imagePullPolicy: Never or
// IfNotPresent: there is no registry.
func (c *Cluster) LoadImage(ctx context.Context, archives ...string) error {
	nodes, ctx := errgroup.WithContext(ctx)
	for node := 1; node <= c.Nodes; node++ {
		nodes.Go(func() error { return c.loadInto(ctx, node, archives...) })
	}
	return nodes.Wait()
}

func (c *Cluster) loadInto(ctx context.Context, node int, archives ...string) error {
	for _, archive := range archives {
		cmd := exec.CommandContext(ctx, "ctr", "--address", c.containerdSocket(node), "--namespace", "k8s.io",
			"images", "import", archive)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("load image %s into %s: %w: %s", archive, c.NodeName(node), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
