package foreign

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"dormouse.dev/dormouse/internal/dev/images"
	"dormouse.dev/dormouse/internal/dev/manifests"
	"dormouse.dev/dormouse/test/env"
)

// rolloutsPath is the module of Argo's controller of Rollouts.
const rolloutsPath = "github.com/argoproj/argo-rollouts"

// rolloutsController is the controller. The release is in the go.mod of its module here.
var rolloutsController = images.Program{
	Name: "rollouts-controller", Package: rolloutsPath + "/cmd/rollouts-controller", Module: "test/env/rollouts",
	Image: "argo-rollouts",
}

// rolloutsNamespace is where its manifests expect it.
const rolloutsNamespace = "argo-rollouts"

var rolloutsRun started

// ArgoRollouts builds Argo's controller of Rollouts, and runs it in the local cluster by its own
// manifests. It does so once.
func ArgoRollouts(ctx context.Context, e *env.Env) error {
	return rolloutsRun.once(func() error {
		dir, refs, err := program(ctx, e, rolloutsController, rolloutsPath)
		if err != nil {
			return err
		}
		objects, err := manifests.Build(filepath.Join(dir, "manifests", "cluster-install"), refs)
		if err != nil {
			return err
		}
		for _, o := range objects {
			if err := intoNamespace(e, o); err != nil {
				return err
			}
		}
		namespace := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": rolloutsNamespace},
		}}
		// As config/components/argo-rollouts does.
		rights := operatorRights("tests-rollouts", "argoproj.io", "rollouts", "get", "list", "watch")
		return bringIn(ctx, e, append(append(objects, namespace), rights...))
	})
}

// intoNamespace gives a namespace to an object that belongs to one, as kubectl apply -n does.
func intoNamespace(e *env.Env, o *unstructured.Unstructured) error {
	if is, err := e.Client.IsObjectNamespaced(o); err != nil {
		return fmt.Errorf("find the scope of %s: %w", o.GetKind(), err)
	} else if is {
		o.SetNamespace(rolloutsNamespace)
	}
	return nil
}

// Rollout makes an Argo Rollout of a game's Pods, which the game's Target then names.
func Rollout(ctx context.Context, e *env.Env, g env.Game) error {
	d := e.Deployment(g)
	template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&d.Spec.Template)
	if err != nil {
		return fmt.Errorf("convert the template of Rollout %s: %w", g.Key(), err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
		"spec": map[string]any{
			"replicas": int64(g.Replicas), "selector": map[string]any{"matchLabels": map[string]any{"app": g.Name}},
			"template": template, "strategy": map[string]any{"canary": map[string]any{}},
		},
	}}
	o.SetNamespace(g.Namespace)
	o.SetName(g.Name)
	if err := e.Client.Create(ctx, o); err != nil {
		return fmt.Errorf("create Rollout %s: %w", g.Key(), err)
	}
	return nil
}
