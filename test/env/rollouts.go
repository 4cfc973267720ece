package env

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"dormouse.dev/dormouse/internal/dev/images"
	"dormouse.dev/dormouse/internal/dev/manifests"
)

// rolloutsModule has the release of Argo's controller in its go.mod.
const rolloutsModule = "test/env/rollouts"

// rolloutsController is Argo's controller of Rollouts.
var rolloutsController = images.Program{
	Name: "rollouts-controller", Package: "github.com/argoproj/argo-rollouts/cmd/rollouts-controller", Module: rolloutsModule,
	Image: "argo-rollouts",
}

// rolloutsNamespace is where its manifests expect it.
const rolloutsNamespace = "argo-rollouts"

// rollouts is the controller in the local cluster, once somebody has asked for it.
type rollouts struct {
	mu   sync.Mutex
	runs bool
}

// ArgoRollouts builds Argo's controller of Rollouts, and runs it in the local cluster by its own
// manifests. It does so once.
func (e *Env) ArgoRollouts(ctx context.Context) error {
	e.rollouts.mu.Lock()
	defer e.rollouts.mu.Unlock()
	if e.rollouts.runs {
		return nil
	}
	refs, err := e.load(ctx, e.Repo, []images.Program{rolloutsController}, os.Stderr)
	if err != nil {
		return err
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/argoproj/argo-rollouts")
	list.Dir = filepath.Join(e.Repo, rolloutsModule)
	dir, err := list.Output()
	if err != nil {
		return fmt.Errorf("find the module of Argo Rollouts: %w", err)
	}
	objects, err := manifests.Build(filepath.Join(string(bytes.TrimSpace(dir)), "manifests", "cluster-install"), refs)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := e.intoNamespace(o); err != nil {
			return err
		}
	}
	objects = append(objects, besideRollouts()...)
	if err := manifests.Apply(ctx, e.Client, "dormouse-tests", objects, nil); err != nil {
		return err
	}
	if err := manifests.WaitAvailable(ctx, e.Client, objects, nil); err != nil {
		return err
	}
	e.rollouts.runs = true
	return nil
}

// besideRollouts is the controller's namespace, and what lets Dormouse watch Rollouts as
// config/components/argo-rollouts does.
func besideRollouts() []*unstructured.Unstructured {
	const name = "tests-rollouts"
	return []*unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": rolloutsNamespace}}},
		{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": name},
			"rules": []any{map[string]any{
				"apiGroups": []any{"argoproj.io"}, "resources": []any{"rollouts"}, "verbs": []any{"get", "list", "watch"},
			}},
		}},
		{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": name},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": SystemNamespace, "name": Operator}},
		}},
	}
}

// intoNamespace gives a namespace to an object that belongs to one, as kubectl apply -n does, and has
// its Pods run the image that the nodes have, and ask for no storage, which the nodes don't count.
func (e *Env) intoNamespace(o *unstructured.Unstructured) error {
	if is, err := e.Client.IsObjectNamespaced(o); err != nil {
		return fmt.Errorf("find the scope of %s: %w", o.GetKind(), err)
	} else if is {
		o.SetNamespace(rolloutsNamespace)
	}
	containers, found, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil || !found {
		return err //nolint:wrapcheck // it says which field it is
	}
	for i := range containers {
		if c, ok := containers[i].(map[string]any); ok {
			c["imagePullPolicy"] = string(corev1.PullIfNotPresent)
			delete(c, "resources")
		}
	}
	return unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers") //nolint:wrapcheck // as above
}

// Rollout makes an Argo Rollout of a game's Pods, which the game's Target then names.
func (e *Env) Rollout(ctx context.Context, g Game) error {
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
