// Package controlplane starts, beside the API server of a test, those of Kubernetes'
// own controllers that delete an owner's objects and count quotas, and installs the
// operator's rights.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/dev/manifests"
	"dormouse.dev/dormouse/test/api/apiserver"
)

// Kubeconfig is a file that connects kubectl to the API server, once Start has
// returned.
var Kubeconfig string

// Start starts the controllers, and installs the rights. What it returns ends them,
// and after a failure shows what they said.
func Start(config *rest.Config) (func(failed bool) error, error) {
	program := os.Getenv("TEST_ASSET_KUBE_CONTROLLER_MANAGER")
	if program == "" {
		return nil, errors.New(`TEST_ASSET_KUBE_CONTROLLER_MANAGER is not set: run this with "make test-api"`)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := installRights(ctx, config); err != nil {
		cancel()
		return nil, err
	}
	dir, err := os.MkdirTemp("", "dormouse-test-")
	if err != nil {
		cancel()
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	Kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(fileOf(config), Kubeconfig); err != nil {
		cancel()
		return nil, fmt.Errorf("write a kubeconfig: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("make a log: %w", err)
	}
	//nolint:gosec // the program is one that whoever runs the tests names
	command := exec.CommandContext(ctx, program, "--kubeconfig="+Kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--controllers=garbage-collector-controller,resourcequota-controller", "--kube-api-qps=1000", "--kube-api-burst=2000")
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start the controllers: %w", err)
	}
	return func(failed bool) error {
		cancel()
		_ = command.Wait() // It was killed.
		defer func() { _ = os.RemoveAll(dir) }()
		if !failed {
			return nil
		}
		said, err := os.ReadFile(log.Name())
		fmt.Fprintf(os.Stderr, "what Kubernetes' controllers said:\n%s\n", said[max(0, len(said)-4000):])
		return err
	}, nil
}

// installRights applies the namespace and the service accounts with their rights.
func installRights(ctx context.Context, config *rest.Config) error {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	for _, part := range []string{"namespace", "rbac"} {
		objects, err := manifests.Build(apiserver.Path("config", part), nil)
		if err != nil {
			return err
		}
		if err := manifests.Apply(ctx, c, "tester", objects, nil); err != nil {
			return err
		}
	}
	return nil
}

func fileOf(config *rest.Config) api.Config {
	file := api.NewConfig()
	file.Clusters["test"] = &api.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["test"] = &api.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	file.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "test"}
	file.CurrentContext = "test"
	return *file
}
