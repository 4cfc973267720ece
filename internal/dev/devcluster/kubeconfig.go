package devcluster

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig saves a kubeconfig that has all it needs in itself, so that
// it may be copied anywhere.
func (c *Cluster) writeKubeconfig(path string, ca *authority, client pair) error {
	config := api.NewConfig()
	config.Clusters["dormouse"] = &api.Cluster{
		Server: c.APIServerURL(), CertificateAuthorityData: ca.pair.cert,
	}
	config.AuthInfos["dormouse"] = &api.AuthInfo{ClientCertificateData: client.cert, ClientKeyData: client.key}
	config.Contexts["dormouse"] = &api.Context{Cluster: "dormouse", AuthInfo: "dormouse"}
	config.CurrentContext = "dormouse"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}
