package security

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dormouse.dev/dormouse/internal/dev/devcluster/audit"
	"dormouse.dev/dormouse/internal/dev/manifests"
)

// right is one verb on one resource: in one namespace, or in all where that is
// empty.
type right struct {
	namespace, group, resource, verb string
}

func (r right) String() string {
	where := "anywhere"
	if r.namespace != "" {
		where = "in " + r.namespace
	}
	group := r.group
	if group == "" {
		group = "core"
	}
	return fmt.Sprintf("%s %s of %s %s", r.verb, r.resource, group, where)
}

// allows reports whether the right is what a request needed. Where two rights would
// do, the one in the request's own namespace is it: see used.
func (r right) allows(e audit.Entry, verb string) bool {
	resource := e.Resource
	if e.Subresource != "" {
		resource += "/" + e.Subresource
		if r.resource == "*/"+e.Subresource {
			resource = r.resource
		}
	}
	return (r.namespace == "" || r.namespace == e.Namespace) && (r.group == "*" || r.group == e.Group) &&
		r.resource == resource && r.verb == verb
}

// granted are the rights that config/rbac gives a program's service account.
func granted(repo, program string) ([]right, error) {
	objects, err := manifests.Build(filepath.Join(repo, "config", "rbac"), nil)
	if err != nil {
		return nil, err
	}
	rules := map[string][]rbacv1.PolicyRule{}
	var clusterWide []rbacv1.ClusterRoleBinding
	var within []rbacv1.RoleBinding
	for _, o := range objects {
		key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		var role rbacv1.ClusterRole // A Role has the same fields.
		var binding rbacv1.RoleBinding
		var into any = &role
		if strings.HasSuffix(o.GetKind(), "Binding") {
			into = &binding
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
		switch o.GetKind() {
		case "ClusterRole", "Role":
			rules[key] = role.Rules
		case "ClusterRoleBinding":
			clusterWide = append(clusterWide, rbacv1.ClusterRoleBinding{RoleRef: binding.RoleRef, Subjects: binding.Subjects})
		case "RoleBinding":
			within = append(within, binding)
		}
	}
	mine := func(s rbacv1.Subject) bool { return s.Kind == "ServiceAccount" && s.Name == program }
	var rights []right
	for _, b := range clusterWide {
		// Kubernetes' own role for the token keys names paths, not resources.
		if slices.ContainsFunc(b.Subjects, mine) {
			rights = append(rights, expand("", rules["ClusterRole /"+b.RoleRef.Name])...)
		}
	}
	for _, b := range within {
		if slices.ContainsFunc(b.Subjects, mine) {
			rights = append(rights, expand(b.Namespace, rules[fmt.Sprintf("%s %s/%s", b.RoleRef.Kind, b.Namespace, b.RoleRef.Name)])...)
		}
	}
	if len(rights) == 0 {
		return nil, fmt.Errorf("config/rbac gives %s no right", program)
	}
	return rights, nil
}

func expand(namespace string, rules []rbacv1.PolicyRule) []right {
	var rights []right
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					rights = append(rights, right{namespace, group, resource, verb})
				}
			}
		}
	}
	return rights
}

// used are the rights that requests needed, with how often.
func used(rights []right, entries []audit.Entry) map[right]int {
	counts := map[right]int{}
	count := func(e audit.Entry, verb string) {
		best := -1
		for i, r := range rights {
			if r.allows(e, verb) && (best < 0 || r.namespace != "") {
				best = i
			}
		}
		if best >= 0 {
			counts[rights[best]]++
		}
	}
	for _, e := range entries {
		count(e, e.Verb)
		// A server-side apply of what isn't there yet wants both rights.
		if e.Verb == "patch" && e.Code == 201 {
			count(e, "create")
		}
		// A cache that asks to begin with what there is lists where the API server
		// can't do that, which Kubernetes 1.32 and 1.33 may be told not to.
		if e.Verb == "watch" && strings.Contains(e.Path, "sendInitialEvents=true") {
			count(e, "list")
		}
	}
	return counts
}
