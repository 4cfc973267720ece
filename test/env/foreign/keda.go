package foreign

import (
	"context"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"dormouse.dev/dormouse/internal/dev/devcluster/pki"
	"dormouse.dev/dormouse/internal/dev/images"
	"dormouse.dev/dormouse/internal/dev/manifests"
	"dormouse.dev/dormouse/test/env"
)

// kedaPath is KEDA's module.
const kedaPath = "github.com/kedacore/keda/v2"

// kedaOperator is KEDA's operator. The release is in the go.mod of its module here.
var kedaOperator = images.Program{Name: "keda", Package: kedaPath + "/cmd/operator", Module: "test/env/keda", Image: "keda"}

// KEDANamespace is where KEDA's manifests have its operator.
const KEDANamespace = "keda"

var kedaRuns started

// rotation has the operator make its certificates, and restart once it has.
const rotation = "--enable-cert-rotation=true"

// KEDA builds KEDA's operator, and runs it in the local cluster by its own manifests. It does so once.
// The first build takes minutes and both cores of a small machine: let no other test run beside it.
//
// Neither KEDA's metrics server runs, which tells a HorizontalPodAutoscaler what triggers measure, nor its
// webhooks. The operator alone makes and deletes HorizontalPodAutoscalers, and scales from and to zero.
func KEDA(ctx context.Context, e *env.Env) error {
	return kedaRuns.once(func() error {
		dir, refs, err := program(ctx, e, kedaOperator, kedaPath)
		if err != nil {
			return err
		}
		certificates, err := kedaCertificates()
		if err != nil {
			return err
		}
		// As config/components/keda does.
		objects := append(operatorRights("tests-keda", "keda.sh", "scaledobjects", "get", "list", "watch", "patch"), certificates)
		for _, part := range []string{"crd", "general", "rbac", "service_account", "manager"} {
			var replaced manifests.Images
			if part == "manager" {
				replaced = refs
			}
			built, err := manifests.Build(filepath.Join(dir, "config", part), replaced)
			if err != nil {
				return err
			}
			objects = append(objects, built...)
		}
		for _, o := range objects {
			if err := changeContainers(o, withCertificates); err != nil {
				return err
			}
		}
		return bringIn(ctx, e, objects)
	})
}

// withCertificates has the operator take the certificates that there are, and be ready once it is.
func withCertificates(container map[string]any) {
	if args, ok := container["args"].([]any); ok {
		container["args"] = slices.DeleteFunc(args, func(arg any) bool { return arg == rotation })
	}
	if probe, ok := container["readinessProbe"].(map[string]any); ok {
		delete(probe, "initialDelaySeconds")
		probe["periodSeconds"] = int64(1)
	}
}

// kedaCertificates are those with which the operator waits for its metrics server. It doesn't start
// without any.
func kedaCertificates() (*unstructured.Unstructured, error) {
	authority, err := pki.NewAuthority("KEDA")
	if err != nil {
		return nil, err
	}
	pair, err := authority.Issue(pki.Identity{User: "keda-operator", Names: []string{"keda-operator." + KEDANamespace + ".svc"}})
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": KEDANamespace, "name": "kedaorg-certs"},
		"stringData": map[string]any{"ca.crt": string(authority.Cert), "tls.crt": string(pair.Cert), "tls.key": string(pair.Key)},
	}}, nil
}
