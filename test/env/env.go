// Package env brings up what end-to-end tests, benchmarks and the demo run
// against: the local cluster, with Dormouse in it as config/dev deploys it, and
// the programs' images built from this source.
package env

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/dev/devcluster"
	"dormouse.dev/dormouse/internal/dev/images"
	"dormouse.dev/dormouse/internal/dev/manifests"
)

// SystemNamespace is where Dormouse runs.
const SystemNamespace = "dormouse-system"

// owner is whose fields the deployed ones are.
const owner = "dormouse-deploy"

// Env is a cluster with Dormouse in it.
type Env struct {
	// Repo is the root of the project's source.
	Repo string
	// Config and Client have every right.
	Config *rest.Config
	Client client.WithWatch
	// TestServer is the reference of the test game server's image.
	TestServer string
	// deployed are the images of Dormouse's programs that run in it.
	deployed manifests.Images
	// web is the image of the test web server.
	web webImage
	// Cluster is the local one; nil for somebody else's.
	Cluster *devcluster.Cluster
}

// Local brings up the local cluster, if it isn't, and brings Dormouse in it up
// to date.
func Local(ctx context.Context, progress io.Writer) (*Env, error) {
	repo, err := RepoRoot()
	if err != nil {
		return nil, err
	}
	cluster, err := devcluster.Up(ctx, devcluster.Options{Repo: repo, Kubeconfig: filepath.Join(repo, "bin", "kubeconfig"), Progress: progress})
	if err != nil {
		return nil, err
	}
	config, err := cluster.RestConfig()
	if err != nil {
		return nil, err
	}
	e := &Env{Repo: repo, Config: config, Cluster: cluster}
	refs, err := e.Load(ctx, repo, images.Programs(), progress)
	if err != nil {
		return nil, err
	}
	e.TestServer = refs["dormouse-testserver"]
	return e, e.deploy(ctx, repo, refs, progress)
}

// Load builds programs from the source at a path, loads their images into the local
// cluster's nodes, and gives their references by their images' names.
func (e *Env) Load(ctx context.Context, source string, programs []images.Program, progress io.Writer) (map[string]string, error) {
	built, err := images.BuildPrograms(ctx, source, "", "", programs, progress)
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	archives := make([]string, 0, len(built))
	for _, b := range built {
		refs[b.Image] = b.Ref
		archives = append(archives, b.Archive)
	}
	fmt.Fprintln(progress, "loading images into the nodes")
	return refs, e.Cluster.LoadImage(ctx, archives...)
}

// Deploy brings the Dormouse of the source at a path into the local cluster, in the
// place of the one that is there: its manifests and its programs.
func (e *Env) Deploy(ctx context.Context, source string, progress io.Writer) error {
	released := slices.DeleteFunc(images.Programs(), func(p images.Program) bool { return p.Dockerfile == "" })
	refs, err := e.Load(ctx, source, released, progress)
	if err != nil {
		return err
	}
	return e.deploy(ctx, source, refs, progress)
}

// Existing brings Dormouse into the cluster of a kubeconfig, with images that
// its nodes can pull below a prefix.
func Existing(ctx context.Context, config *rest.Config, prefix string, progress io.Writer) (*Env, error) {
	repo, err := RepoRoot()
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for _, p := range images.Programs() {
		refs[p.Image] = p.Ref(prefix, images.DevTag)
	}
	e := &Env{Repo: repo, Config: config, TestServer: refs["dormouse-testserver"]}
	return e, e.deploy(ctx, repo, refs, progress)
}

// deploy connects to the cluster, applies config/dev of some source with the images and waits
// until it is available.
func (e *Env) deploy(ctx context.Context, source string, refs map[string]string, progress io.Writer) error {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return fmt.Errorf("build the scheme: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("build the scheme: %w", err)
	}
	// The client's own limit of 20 requests a second is for good neighbours; the
	// API server's priority and fairness does for tests.
	e.Config.QPS = -1
	c, err := client.NewWithWatch(e.Config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to %s: %w", e.Config.Host, err)
	}
	e.Client = c
	e.deployed = manifests.Images{}
	for _, name := range []string{"dormouse-operator", "dormouse-resolver", "dormouse-sidecar"} {
		e.deployed[name] = refs[name]
	}
	return e.apply(ctx, filepath.Join(source, "config", "dev"), progress)
}

// Overlay applies an overlay of config/, such as "namespaced", with the images that run already,
// and waits until it is available. What only the overlay before it has stays.
func (e *Env) Overlay(ctx context.Context, name string, progress io.Writer) error {
	return e.apply(ctx, filepath.Join(e.Repo, "config", name), progress)
}

func (e *Env) apply(ctx context.Context, overlay string, progress io.Writer) error {
	objects, err := manifests.Build(overlay, e.deployed)
	if err != nil {
		return err
	}
	say := func(line string) { fmt.Fprintln(progress, line) }
	if err := manifests.Apply(ctx, e.Client, owner, objects, say); err != nil {
		return err
	}
	return manifests.WaitAvailable(ctx, e.Client, objects, say)
}

// DialPlayer opens a socket where players are: in the network namespace of the
// local cluster's player.
func (e *Env) DialPlayer(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := e.Cluster.InPlayer(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// RepoRoot walks up from the working directory to the project's go.mod.
func RepoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the project's root: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "config", "dev")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("find the project's root: run this inside the project")
		}
		dir = parent
	}
}
