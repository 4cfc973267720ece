// Package binaries has the programs that a cluster runs: those that are built from the modules
// beside it, and those of Debian's packages.
package binaries

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"dormouse.dev/dormouse/internal/dev/devcluster/host"
)

// The releases that the nested modules pin. The version would read
// v0.0.0-master if the linker weren't told.
const (
	KubernetesVersion = "v1.36.3"
	CoreDNSVersion    = "1.15.0"
)

// ProvisionerName is what the volume provisioner calls itself.
const ProvisionerName = "rancher.io/local-path"

// program is a binary to build: its name, its directory beside this package,
// the linker's flags, and the package, if it isn't in that directory.
type program struct {
	name, dir, ldflags, pkg string
}

func programs() []program {
	const version = "-X k8s.io/component-base/version."
	parts := strings.Split(strings.TrimPrefix(KubernetesVersion, "v"), ".")
	return []program{
		{name: "kubernetes", dir: "kubernetes", ldflags: fmt.Sprintf(
			"-s -w %[1]sgitVersion=%[2]s %[1]sgitMajor=%[3]s %[1]sgitMinor=%[4]s", version, KubernetesVersion, parts[0], parts[1],
		)},
		{name: "coredns", dir: "coredns", ldflags: "-s -w"},
		{name: "local-path-provisioner", dir: "localpath", ldflags: "-s -w", pkg: "github.com/rancher/local-path-provisioner"},
		{name: "pause", dir: "pause", ldflags: "-s -w"},
		{name: "volume", dir: "volume", ldflags: "-s -w"},
	}
}

// aliases are the names under which the multi-call binary is linked, for
// people and for envtest.
var aliases = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"}

// Build compiles what the cluster runs into bin/ of the project, and returns
// that directory. What is up to date is left as it is; the first build
// compiles all of Kubernetes and takes minutes.
func Build(ctx context.Context, repo string, progress io.Writer) (string, error) {
	if progress == nil {
		progress = io.Discard
	}
	if repo == "" {
		found, err := FindRepo()
		if err != nil {
			return "", err
		}
		repo = found
	}
	bin := filepath.Join(repo, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", fmt.Errorf("make %s: %w", bin, err)
	}
	for _, p := range programs() {
		if err := p.build(ctx, filepath.Join(repo, "internal", "dev", "devcluster", p.dir), bin, progress); err != nil {
			return "", err
		}
	}
	for _, alias := range aliases {
		if err := host.ReplaceLink(filepath.Join(bin, alias), "kubernetes"); err != nil {
			return "", err
		}
	}
	return bin, nil
}

// Assets are the programs that controller-runtime's envtest starts; give them
// to it as TEST_ASSET_ETCD, TEST_ASSET_KUBE_APISERVER and TEST_ASSET_KUBECTL. It
// knows no controllers; tests that need Kubernetes' own start them themselves.
type Assets struct {
	Etcd, APIServer, Kubectl, ControllerManager string
}

// EnvtestAssets builds, if need be, the binary that also runs the cluster, and
// tells where envtest finds its parts.
func EnvtestAssets(ctx context.Context, repo string, progress io.Writer) (Assets, error) {
	bin, err := Build(ctx, repo, progress)
	if err != nil {
		return Assets{}, err
	}
	return Assets{
		Etcd: filepath.Join(bin, "etcd"), APIServer: filepath.Join(bin, "kube-apiserver"), Kubectl: filepath.Join(bin, "kubectl"),
		ControllerManager: filepath.Join(bin, "kube-controller-manager"),
	}, nil
}

// build compiles unless the binary was made from the very same input. The go
// command could tell too, but takes seconds to look at a thousand packages.
func (p program) build(ctx context.Context, dir, bin string, progress io.Writer) error {
	stamp := filepath.Join(bin, "."+p.name+".stamp")
	out := filepath.Join(bin, p.name)
	input, err := p.fingerprint(dir)
	if err != nil {
		return err
	}
	if last, err := os.ReadFile(stamp); err == nil && string(last) == input {
		if _, err := os.Stat(out); err == nil {
			return nil
		}
	}
	fmt.Fprintf(progress, "building bin/%s (the first build of Kubernetes takes minutes)\n", p.name)
	// The old binary may be running: it is replaced, not written over.
	partial := out + ".partial"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", p.ldflags, "-o", partial, cmp.Or(p.pkg, "."))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", p.name, err, bytes.TrimSpace(output))
	}
	if err := os.Rename(partial, out); err != nil {
		return fmt.Errorf("install %s: %w", p.name, err)
	}
	if err := os.WriteFile(stamp, []byte(input), 0o644); err != nil {
		return fmt.Errorf("remember build of %s: %w", p.name, err)
	}
	return nil
}

// fingerprint is of all that the binary is made from.
func (p program) fingerprint(dir string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOARCH, p.ldflags)
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("list source of %s: %w", p.name, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return "", fmt.Errorf("read source of %s: %w", p.name, err)
		}
		fmt.Fprintln(h, file.Name(), len(content))
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// FindRepo walks up from the working directory to the project's go.mod.
func FindRepo() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the project's root: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "internal", "dev", "devcluster", "kubernetes", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find the project's root: the working directory is not in the project")
		}
	}
}
