package images

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Spec says what is in an image and how it is started.
type Spec struct {
	// Ref is the image's name with its tag, as a Pod asks for it.
	Ref string
	// Entrypoint is the program and its fixed arguments; Args are those that a
	// Pod's args replace.
	Entrypoint []string
	Args       []string
	// User is "uid" or "uid:gid". Numbers only: Kubernetes can't check
	// runAsNonRoot against a name.
	User    string
	WorkDir string
	// Env has entries of the form NAME=value.
	Env    []string
	Labels map[string]string
	// Files are keyed by their absolute path in the image.
	Files map[string]File
}

// Build makes an image of one layer. It reads the files' content now, so they
// may change or go afterwards.
func Build(spec Spec) (v1.Image, error) {
	entries, err := spec.entries()
	if err != nil {
		return nil, fmt.Errorf("build image %s: %w", spec.Ref, err)
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return layerOf(entries), nil },
		tarball.WithCompressionLevel(gzip.BestSpeed),
		tarball.WithCompressedCaching,
	)
	if err != nil {
		return nil, fmt.Errorf("build layer of image %s: %w", spec.Ref, err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("build image %s: %w", spec.Ref, err)
	}
	image, err = mutate.ConfigFile(image, spec.configFile(image))
	if err != nil {
		return nil, fmt.Errorf("configure image %s: %w", spec.Ref, err)
	}
	return image, nil
}

func (s Spec) configFile(image v1.Image) *v1.ConfigFile {
	config, err := image.ConfigFile()
	if err != nil {
		config = &v1.ConfigFile{}
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{
		Entrypoint: s.Entrypoint,
		Cmd:        s.Args,
		User:       s.User,
		WorkingDir: s.WorkDir,
		Env:        s.Env,
		Labels:     s.Labels,
	}
	return config
}

// entry is a File at its place in a layer.
type entry struct {
	name string
	File
}

// entries lists the files in the order of the layer, with a directory for
// every parent that has no entry of its own.
func (s Spec) entries() ([]entry, error) {
	all := make(map[string]File, len(s.Files))
	for name, file := range s.Files {
		if !path.IsAbs(name) || path.Clean(name) != name || name == "/" {
			return nil, fmt.Errorf("add %q: want a clean absolute path", name)
		}
		all[name] = file
	}
	for name := range s.Files {
		for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
			parent, ok := all[dir]
			if ok && parent.kind != tar.TypeDir {
				return nil, fmt.Errorf("add %s: its parent %s is not a directory", name, dir)
			}
			if !ok {
				all[dir] = Dir(0o755)
			}
		}
	}
	// Sorted by name, a directory comes before what is in it.
	entries := make([]entry, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		entries = append(entries, entry{strings.TrimPrefix(name, "/"), all[name]})
	}
	return entries, nil
}

// layerOf streams the entries as a tar archive.
func layerOf(entries []entry) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		archive := tar.NewWriter(w)
		for _, e := range entries {
			if err := e.appendTo(archive); err != nil {
				w.CloseWithError(err)
				return
			}
		}
		w.CloseWithError(archive.Close())
	}()
	return r
}

func (e entry) appendTo(archive *tar.Writer) error {
	header, err := e.header(e.name)
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("write header of %s: %w", e.name, err)
	}
	if e.kind != tar.TypeReg {
		return nil
	}
	content, err := e.open()
	if err != nil {
		return fmt.Errorf("open file for %s: %w", e.name, err)
	}
	defer content.Close()
	if _, err := io.Copy(archive, content); err != nil {
		return fmt.Errorf("write %s: %w", e.name, err)
	}
	return nil
}
