package images

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Save writes an image under its reference as an archive that containerd, and
// Docker, can import. The file appears whole or not at all.
func Save(path, ref string, image v1.Image) error {
	tag, err := name.NewTag(ref, name.WeakValidation)
	if err != nil {
		return fmt.Errorf("parse image reference %q: %w", ref, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make directory for image %s: %w", ref, err)
	}
	partial := path + ".partial"
	defer os.Remove(partial)
	if err := tarball.WriteToFile(partial, tag, image); err != nil {
		return fmt.Errorf("write image %s: %w", ref, err)
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("write image %s: %w", ref, err)
	}
	return nil
}

// BuildAndSave is [Build] followed by [Save].
func BuildAndSave(path string, spec Spec) error {
	image, err := Build(spec)
	if err != nil {
		return err
	}
	return Save(path, spec.Ref, image)
}
