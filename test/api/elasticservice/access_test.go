package elasticservice_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// token asks for a token of a service account. An empty audience is the API
// server's; pod binds the token to it and may be nil.
func (e *environment) token(ctx context.Context, namespace, account, audience string, pod *corev1.Pod) (string, error) {
	request := &authenticationv1.TokenRequest{}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}
	}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := e.client.SubResource("token").Create(ctx, of, request); err != nil {
		return "", fmt.Errorf("ask for a token of %s/%s: %w", namespace, account, err)
	}
	return request.Status.Token, nil
}

// writeAccess writes what an operator's pod has mounted: a kubeconfig with its
// own account, and the token that resolvers know it by.
func (e *environment) writeAccess(ctx context.Context) (kubeconfig, tokenFile string, err error) {
	own, err := e.token(ctx, systemNamespace, operatorAccount, "", nil)
	if err != nil {
		return "", "", err
	}
	forResolvers, err := e.token(ctx, systemNamespace, operatorAccount, v1alpha1.TokenAudience, nil)
	if err != nil {
		return "", "", err
	}
	const name = "test"
	access := clientcmdapi.NewConfig()
	access.Clusters[name] = &clientcmdapi.Cluster{Server: e.config.Host, CertificateAuthorityData: e.config.CAData}
	access.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: own}
	access.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	access.CurrentContext = name
	kubeconfig = filepath.Join(e.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*access, kubeconfig); err != nil {
		return "", "", fmt.Errorf("write the operator's kubeconfig: %w", err)
	}
	tokenFile = filepath.Join(e.dir, "token")
	if err := os.WriteFile(tokenFile, []byte(forResolvers), 0o600); err != nil {
		return "", "", fmt.Errorf("write the operator's token: %w", err)
	}
	return kubeconfig, tokenFile, nil
}
