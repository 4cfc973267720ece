package images

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestTheSameFilesGiveTheSameDigest(t *testing.T) {
	var digests []v1.Hash
	for range 2 {
		binary := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(binary, []byte("machine code"), 0o755); err != nil {
			t.Fatal(err)
		}
		image, err := Build(Spec{
			Ref:        "dormouse.dev/program:test",
			Entrypoint: []string{"/program"},
			Files:      map[string]File{"/program": FromHost(binary), "/etc/a": Bytes([]byte("a"), 0o644), "/var/b": Link("/etc/a")},
		})
		if err != nil {
			t.Fatal(err)
		}
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("digests differ: %v and %v", digests[0], digests[1])
	}
}

func TestALayerHasEveryFileWithItsParentsFirst(t *testing.T) {
	image, err := Build(Spec{Ref: "x:y", Files: map[string]File{
		"/usr/bin/game": Bytes([]byte("x"), 0o755),
		"/data":         Dir(0o750).OwnedBy(65532),
		"/lib":          Link("usr/lib"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"data 750 65532 ", "lib 777 0 usr/lib", "usr 755 0 ", "usr/bin 755 0 ", "usr/bin/game 755 0 ",
	}
	if diff := cmp.Diff(want, contents(t, image)); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
}

func TestAPathThatIsNotCleanIsRefused(t *testing.T) {
	for _, name := range []string{"relative", "/", "/a/../b", "/a/"} {
		if _, err := Build(Spec{Ref: "x:y", Files: map[string]File{name: Dir(0o755)}}); err == nil {
			t.Errorf("Build took %q", name)
		}
	}
}

func TestASavedImageIsReadUnderItsReference(t *testing.T) {
	spec := Spec{
		Ref: "dormouse.dev/program:test", Entrypoint: []string{"/p"}, Args: []string{"-v"}, User: "65532", Env: []string{"A=b"},
		Files: map[string]File{"/p": Bytes(nil, 0o755)},
	}
	path := filepath.Join(t.TempDir(), "sub", "image.tar")
	if err := BuildAndSave(path, spec); err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{Entrypoint: spec.Entrypoint, Cmd: spec.Args, User: spec.User, Env: spec.Env}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

func TestAClosureKeepsLinksAndFollowsThem(t *testing.T) {
	root := t.TempDir()
	real := filepath.Join(root, "real")
	for _, dir := range []string{real, filepath.Join(root, "data")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(real, "program")
	for path, content := range map[string]string{program: "#!/bin/sh\n", filepath.Join(root, "data", "map"): "m"} {
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"bin": "real", "data/latest": "map", "data/gone": "nothing"} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := Closure(t.Context(), filepath.Join(root, "bin", "program"), filepath.Join(root, "data"))
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]byte{
		"bin": tar.TypeSymlink, "real/program": tar.TypeReg, "data": tar.TypeDir,
		"data/map": tar.TypeReg, "data/latest": tar.TypeSymlink, "data/gone": tar.TypeSymlink,
	} {
		file, ok := files[filepath.Join(root, name)]
		if !ok || file.kind != kind {
			t.Errorf("%s: found %v with type %q, want type %q", name, ok, file.kind, kind)
		}
	}
	if _, err := Build(Spec{Ref: "x:y", Files: files}); err != nil {
		t.Errorf("Build of the closure: %v", err)
	}
}

func TestTheLoadersOutputIsRead(t *testing.T) {
	paths, err := parseLDD("\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\t/lib64/ld-linux.so.2 (0x00007f)\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/lib/libc.so.6", "/lib64/ld-linux.so.2"}, paths); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	if _, err := parseLDD("\tlibgame.so => not found\n"); err == nil {
		t.Error("a library that was not found went unnoticed")
	}
}

// contents lists an image's files as "name mode owner link".
func contents(t *testing.T, image v1.Image) []string {
	t.Helper()
	reader := mutate.Extract(image)
	defer reader.Close()
	archive := tar.NewReader(reader)
	var names []string
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, describe(h))
	}
}

func describe(h *tar.Header) string {
	return fmt.Sprintf("%s %o %d %s", h.Name, h.Mode, h.Uid, h.Linkname)
}
