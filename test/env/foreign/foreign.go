// Package foreign runs other projects' controllers in the local cluster, beside which Dormouse has to work.
package foreign

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

	"dormouse.dev/dormouse/internal/dev/images"
	"dormouse.dev/dormouse/internal/dev/manifests"
	"dormouse.dev/dormouse/test/env"
)

// started is another project's controller in the local cluster, once somebody has asked for it.
type started struct {
	mu   sync.Mutex
	runs bool
}

// once starts the controller unless it runs.
func (s *started) once(start func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs {
		return nil
	}
	err := start()
	s.runs = err == nil
	return err
}

// program builds another project's controller, loads its image into the nodes, and tells where the
// source of its module is, which has its manifests.
func program(ctx context.Context, e *env.Env, p images.Program, path string) (dir string, refs manifests.Images, err error) {
	refs, err = e.Load(ctx, e.Repo, []images.Program{p}, os.Stderr)
	if err != nil {
		return "", nil, err
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", path)
	list.Dir = filepath.Join(e.Repo, p.Module)
	out, err := list.Output()
	if err != nil {
		return "", nil, fmt.Errorf("find the module %s: %w", path, err)
	}
	return string(bytes.TrimSpace(out)), refs, nil
}

// bringIn applies another project's objects and waits until its Deployments are available. Their Pods
// run the image that the nodes have, and ask for no storage, which the nodes don't count.
func bringIn(ctx context.Context, e *env.Env, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if err := changeContainers(o, func(c map[string]any) {
			c["imagePullPolicy"] = string(corev1.PullIfNotPresent)
			delete(c, "resources")
		}); err != nil {
			return err
		}
	}
	if err := manifests.Apply(ctx, e.Client, "dormouse-tests", objects, nil); err != nil {
		return err
	}
	return manifests.WaitAvailable(ctx, e.Client, objects, nil)
}

// changeContainers changes the containers of a workload; other objects have none.
func changeContainers(o *unstructured.Unstructured, change func(container map[string]any)) error {
	where := []string{"spec", "template", "spec", "containers"}
	containers, found, err := unstructured.NestedSlice(o.Object, where...)
	if err != nil || !found {
		return err //nolint:wrapcheck // it says which field it is
	}
	for i := range containers {
		if c, ok := containers[i].(map[string]any); ok {
			change(c)
		}
	}
	return unstructured.SetNestedSlice(o.Object, containers, where...) //nolint:wrapcheck // as above
}

// operatorRights give Dormouse's operator rights to a kind of another project.
func operatorRights(name, group, resource string, verbs ...any) []*unstructured.Unstructured {
	return []*unstructured.Unstructured{
		{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": name},
			"rules": []any{map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}},
		}},
		{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": name},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": env.SystemNamespace, "name": env.Operator}},
		}},
	}
}
