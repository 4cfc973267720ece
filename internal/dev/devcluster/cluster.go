package devcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"dormouse.dev/dormouse/internal/dev/devcluster/host"
	"dormouse.dev/dormouse/internal/dev/devcluster/plan"
)

// Options are what [Up] may be told.
type Options struct {
	// Nodes is how many nodes there are, 2 when it is zero.
	Nodes int
	// Repo is the root of the project's source, whose bin/ the binaries go to.
	// The module that the working directory is in when it is empty.
	Repo string
	// Kubeconfig is where a link to the cluster's kubeconfig is put, besides
	// the one in [StateDir].
	Kubeconfig string
	// Progress is where lines for a person to read go; nowhere when nil.
	Progress io.Writer
}

// Cluster is the machine's running cluster.
type Cluster struct {
	plan.Plan
	layout
	// BinDir has the binaries that the cluster runs.
	BinDir string

	ledger *host.Ledger
	cgroup host.Cgroup
}

// state is what one program tells the next about a cluster that is up.
type state struct {
	Plan   plan.Plan `json:"plan"`
	BinDir string    `json:"binDir"`
	// Kubeconfig is the link that was asked for.
	Kubeconfig string `json:"kubeconfig,omitempty"`
}

// ErrNotUp means that there is no running cluster to attach to.
var ErrNotUp = errors.New("no development cluster is up")

// Open attaches to the cluster that is up on this machine. It does not ask
// whether the cluster is well: see [Cluster.Check].
func Open() (*Cluster, error) {
	files := layout{StateDir}
	content, err := os.ReadFile(files.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotUp
	}
	if err != nil {
		return nil, fmt.Errorf("read state of the cluster: %w", err)
	}
	var s state
	if err := json.Unmarshal(content, &s); err != nil {
		return nil, fmt.Errorf("parse state of the cluster: %w", err)
	}
	return attach(s)
}

func attach(s state) (*Cluster, error) {
	group, err := host.FindCgroup()
	if err != nil {
		return nil, err
	}
	files := layout{StateDir}
	return &Cluster{
		Plan: s.Plan, layout: files, BinDir: s.BinDir,
		ledger: host.NewLedger(files.ledgerPath()), cgroup: group,
	}, nil
}

// save marks the cluster as up.
func (s state) save() error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode state of the cluster: %w", err)
	}
	if err := os.WriteFile((layout{StateDir}).statePath(), content, 0o644); err != nil {
		return fmt.Errorf("save state of the cluster: %w", err)
	}
	return nil
}

// RestConfig is for clients with every right.
func (c *Cluster) RestConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 1000, 2000
	return config, nil
}
