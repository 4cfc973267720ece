package manifests_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/dev/manifests"
	"dormouse.dev/dormouse/test/api/fixture"
)

const systemNamespace = "dormouse-system"

// everyone is what Kubernetes lets each account do: ask about itself.
var everyone = []string{
	"create selfsubjectaccessreviews.authorization.k8s.io", "create selfsubjectreviews.authentication.k8s.io",
	"create selfsubjectrulesreviews.authorization.k8s.io",
}

// serversNamespace is where the servers of the REST API are.
const serversNamespace = "dormouse-servers"

// rights are all that each program may do, cluster-wide, and then besides in its own namespace, and
// in that of the REST API's servers. Scales stand for those of every kind.
var rights = map[string]struct{ anywhere, own, servers []string }{
	"dormouse-operator": {
		anywhere: []string{
			"get */scale", "update */scale", "patch */scale",
			"get namespaces", "list configmaps", "watch configmaps", "list pods", "watch pods", "list events",
			"create services", "delete services", "list services", "patch services", "watch services",
			"get deployments.apps", "list deployments.apps", "watch deployments.apps",
			"create deployments.apps", "delete deployments.apps", "patch deployments.apps",
			"get statefulsets.apps", "list statefulsets.apps", "watch statefulsets.apps",
			"get replicasets.apps", "get fleets.dormouse.dev", "get gametypes.dormouse.dev",
			"create endpointslices.discovery.k8s.io", "delete endpointslices.discovery.k8s.io",
			"list endpointslices.discovery.k8s.io", "patch endpointslices.discovery.k8s.io", "update endpointslices.discovery.k8s.io",
			"watch endpointslices.discovery.k8s.io",
			"get elasticservices.dormouse.dev", "list elasticservices.dormouse.dev", "patch elasticservices.dormouse.dev",
			"create elasticservices.dormouse.dev", "delete elasticservices.dormouse.dev", "watch elasticservices.dormouse.dev", "patch elasticservices/status.dormouse.dev",
			"create fleets.dormouse.dev", "delete fleets.dormouse.dev", "list fleets.dormouse.dev", "patch fleets.dormouse.dev",
			"watch fleets.dormouse.dev", "patch fleets/status.dormouse.dev",
			"list gametypes.dormouse.dev", "patch gametypes.dormouse.dev", "watch gametypes.dormouse.dev", "patch gametypes/status.dormouse.dev",
			"delete allocations.dormouse.dev", "list allocations.dormouse.dev",
			"watch allocations.dormouse.dev", "patch allocations/status.dormouse.dev",
			"list gameautoscalers.dormouse.dev", "watch gameautoscalers.dormouse.dev", "patch gameautoscalers/status.dormouse.dev",
			"list horizontalpodautoscalers.autoscaling", "watch horizontalpodautoscalers.autoscaling",
			"create servers.dormouse.dev", "delete servers.dormouse.dev", "get servers.dormouse.dev", "list servers.dormouse.dev",
			"patch servers.dormouse.dev", "watch servers.dormouse.dev", "patch servers/status.dormouse.dev",
			"create pods", "delete pods", "get pods", "list pods", "patch pods", "watch pods", "list nodes", "watch nodes",
			"create persistentvolumeclaims", "delete persistentvolumeclaims", "get persistentvolumeclaims", "list persistentvolumeclaims", "patch persistentvolumeclaims",
			"create poddisruptionbudgets.policy", "delete poddisruptionbudgets.policy", "list poddisruptionbudgets.policy",
			"patch poddisruptionbudgets.policy", "watch poddisruptionbudgets.policy",
			"create events.events.k8s.io", "patch events.events.k8s.io", "create secrets",
			"get backups.dormouse.dev",
			"get restores.dormouse.dev", "list restores.dormouse.dev", "patch restores.dormouse.dev", "watch restores.dormouse.dev",
			"patch restores/status.dormouse.dev",
			"create backups.dormouse.dev", "delete backups.dormouse.dev", "list backups.dormouse.dev", "patch backups.dormouse.dev",
			"watch backups.dormouse.dev", "patch backups/status.dormouse.dev",
			"create jobs.batch", "delete jobs.batch", "get jobs.batch", "list jobs.batch", "watch jobs.batch",
		},
		own: []string{
			"create events", "list pods", "watch pods", "list podtemplates", "watch podtemplates",
			"create leases.coordination.k8s.io", "get leases.coordination.k8s.io", "update leases.coordination.k8s.io",
		},
	},
	"dormouse-api": {
		anywhere: []string{"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io", "list nodes"},
		servers: []string{
			"create servers.dormouse.dev", "delete servers.dormouse.dev", "get servers.dormouse.dev", "list servers.dormouse.dev",
			"patch servers.dormouse.dev", "watch servers.dormouse.dev", "update servers/scale.dormouse.dev",
			"create elasticservices.dormouse.dev", "get elasticservices.dormouse.dev", "list elasticservices.dormouse.dev",
			"patch elasticservices.dormouse.dev", "watch elasticservices.dormouse.dev", "get gametypes.dormouse.dev", "list gametypes.dormouse.dev",
			"create allocations.dormouse.dev", "delete allocations.dormouse.dev", "get allocations.dormouse.dev",
			"list allocations.dormouse.dev", "patch allocations.dormouse.dev", "watch allocations.dormouse.dev",
			"create services", "get services", "list services", "patch services", "watch services",
			"get pods/log", "list events", "watch events",
		},
	},
	"dormouse-resolver": {
		anywhere: []string{
			"list endpointslices.discovery.k8s.io", "watch endpointslices.discovery.k8s.io",
			"list elasticservices.dormouse.dev", "watch elasticservices.dormouse.dev",
			"list servers.dormouse.dev", "watch servers.dormouse.dev",
		},
	},
}

// TestEachProgramMayDoThisAndNothingElse asks the API server about every verb on
// every resource that it has: Secrets, exec, other people's pods and all.
func TestEachProgramMayDoThisAndNothingElse(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	admin := install(ctx, t)
	for program, want := range rights {
		for namespace, more := range map[string][]string{"default": nil, systemNamespace: want.own, serversNamespace: want.servers} {
			t.Run(program+" in "+namespace, func(t *testing.T) {
				expected := slices.Compact(slices.Sorted(slices.Values(slices.Concat(everyone, want.anywhere, more))))
				got, asked := allowed(ctx, t, admin, program, namespace)
				if diff := cmp.Diff(expected, got); diff != "" {
					t.Errorf("what it may do, of %d things (-want +got):\n%s", asked, diff)
				}
			})
		}
	}
}

// With config/namespaced they have that in the namespaces that it names and, but for
// looking at nodes, nowhere else.
func TestInNamedNamespacesEachProgramMayDoThisAndNothingElse(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	admin := install(ctx, t)
	c, err := client.New(fixture.Config(t), client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "games"}}); err != nil {
		t.Fatal(err)
	}
	objects := build(t, fixture.Path("config", "namespaced"))
	for _, o := range objects {
		if r := rights[o.GetName()]; o.GetKind() == "ClusterRoleBinding" && r.anywhere != nil && r.servers == nil {
			t.Errorf("it has the ClusterRoleBinding %s", o.GetName())
		}
	}
	if err := manifests.Apply(ctx, c, "tester", objects, nil); err != nil {
		t.Fatal(err)
	}
	nodes := []string{"list nodes", "watch nodes"}
	for program, want := range rights {
		if want.servers != nil {
			t.Run(program+" in games", func(t *testing.T) {
				expected := slices.Compact(slices.Sorted(slices.Values(slices.Concat(everyone, want.anywhere, want.servers))))
				got, asked := allowed(ctx, t, admin, program, "games")
				if diff := cmp.Diff(expected, got); diff != "" {
					t.Errorf("what it may do, of %d things (-want +got):\n%s", asked, diff)
				}
			})
			continue
		}
		// What the other tests have installed.
		if err := c.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: program}}); err != nil {
			t.Fatal(err)
		}
		everywhere := slices.Clone(everyone)
		if slices.Contains(want.anywhere, nodes[0]) {
			everywhere = append(everywhere, nodes...)
		}
		var addresses []string // the API server's
		if program == "dormouse-operator" {
			addresses = []string{"list endpointslices.discovery.k8s.io", "watch endpointslices.discovery.k8s.io"}
		}
		removed := slices.IndexFunc(want.anywhere, func(right string) bool { return !slices.Contains(slices.Concat(everywhere, addresses), right) })
		fixture.Eventually(t, time.Minute, "the API server knows that the ClusterRoleBinding is gone", func(ctx context.Context) error {
			if got, _ := allowed(ctx, t, admin, program, "default"); removed >= 0 && slices.Contains(got, want.anywhere[removed]) {
				return fmt.Errorf("%s may %s", program, want.anywhere[removed])
			}
			return nil
		})
		for namespace, more := range map[string][]string{"default": addresses, "games": want.anywhere, systemNamespace: want.own} {
			t.Run(program+" in "+namespace, func(t *testing.T) {
				expected := slices.Compact(slices.Sorted(slices.Values(slices.Concat(everywhere, more))))
				got, asked := allowed(ctx, t, admin, program, namespace)
				if diff := cmp.Diff(expected, got); diff != "" {
					t.Errorf("what it may do, of %d things (-want +got):\n%s", asked, diff)
				}
			})
		}
	}
}

// With a component for another project's kind the operator may do this with it, and no more than
// that.
func TestAComponentAddsTheRightsToItsKind(t *testing.T) {
	rules := func(objects []*unstructured.Unstructured) []rbacv1.PolicyRule {
		t.Helper()
		for _, o := range objects {
			if role := (rbacv1.ClusterRole{}); o.GetKind() == "ClusterRole" && o.GetName() == "dormouse-operator" {
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
					t.Fatal(err)
				}
				return role.Rules
			}
		}
		t.Fatal("there is no ClusterRole dormouse-operator")
		return nil
	}
	for component, more := range map[string]rbacv1.PolicyRule{
		"keda":          {APIGroups: []string{"keda.sh"}, Resources: []string{"scaledobjects"}, Verbs: []string{"get", "list", "watch", "patch"}},
		"argo-rollouts": {APIGroups: []string{"argoproj.io"}, Resources: []string{"rollouts"}, Verbs: []string{"get", "list", "watch"}},
	} {
		want := append(rules(build(t, fixture.Path("config", "default"))), more)
		got := rules(build(t, withComponent(t, fixture.Path("config", "components", component))))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the operator's rules with %s (-want +got):\n%s", component, diff)
		}
	}
}

// Of Secrets and webhooks the operator has one each, by name.
func TestTheOperatorMayDoThisToWhatIsNamed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	admin := install(ctx, t)
	for what, want := range map[authorizationv1.ResourceAttributes][]string{
		{Namespace: systemNamespace, Resource: "secrets", Name: "dormouse-operator"}:                                          {"list", "watch", "create", "update"},
		{Namespace: systemNamespace, Resource: "secrets", Name: "other"}:                                                      {"create"},
		{Namespace: "default", Resource: "secrets", Name: "dormouse-operator"}:                                                {"create"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Name: "dormouse-eviction-guard"}: {"list", "watch", "patch"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Name: "other"}:                   nil,
	} {
		if diff := cmp.Diff(want, verbsOn(ctx, t, admin, what)); diff != "" {
			t.Errorf("on %s %s in %q (-want +got):\n%s", what.Resource, what.Name, what.Namespace, diff)
		}
	}
}

// A namespace that lets triggers show Secrets lets the operator get those that it names, and no
// other.
func TestANamespaceNamesTheSecretsThatTriggersShow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	admin := install(ctx, t)
	c, err := client.New(fixture.Config(t), client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "metered"}}); err != nil {
		t.Fatal(err)
	}
	objects := build(t, fixture.Path("config", "trigger-secrets"))
	for _, o := range objects {
		o.SetNamespace("metered")
	}
	if err := manifests.Apply(ctx, c, "tester", objects, nil); err != nil {
		t.Fatal(err)
	}
	bound := authorizationv1.ResourceAttributes{Namespace: "metered", Resource: "secrets", Name: "dormouse-triggers"}
	fixture.Eventually(t, time.Minute, "the API server knows of the RoleBinding", func(ctx context.Context) error {
		if got := verbsOn(ctx, t, admin, bound); !slices.Contains(got, "get") {
			return fmt.Errorf("the operator may %v", got)
		}
		return nil
	})
	for what, want := range map[authorizationv1.ResourceAttributes][]string{
		{Namespace: "metered", Resource: "secrets", Name: "dormouse-triggers"}: {"get", "create"},
		{Namespace: "metered", Resource: "secrets", Name: "other"}:             {"create"},
		{Namespace: "metered", Resource: "secrets"}:                            {"create"},
		{Namespace: "default", Resource: "secrets", Name: "dormouse-triggers"}: {"create"},
	} {
		if diff := cmp.Diff(want, verbsOn(ctx, t, admin, what)); diff != "" {
			t.Errorf("on %s %s in %q (-want +got):\n%s", what.Resource, what.Name, what.Namespace, diff)
		}
	}
}

// verbsOn are the operator's verbs on something that is named.
func verbsOn(ctx context.Context, t *testing.T, admin *kubernetes.Clientset, what authorizationv1.ResourceAttributes) []string {
	t.Helper()
	var got []string
	for _, verb := range verbs {
		what.Verb = verb
		answer, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: account("dormouse-operator"), ResourceAttributes: &what},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if answer.Status.Allowed {
			got = append(got, verb)
		}
	}
	return got
}

var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// allowed are the verbs on resources that a program has in a namespace, and how
// many were asked about.
func allowed(ctx context.Context, t *testing.T, admin *kubernetes.Clientset, program, namespace string) ([]string, int) {
	t.Helper()
	_, lists, err := admin.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatalf("list resources: %v", err)
	}
	var mu sync.Mutex
	found := map[string]bool{}
	asked := 0
	var group sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, list := range lists {
		groupName, _, _ := strings.Cut(list.GroupVersion, "/")
		if list.GroupVersion == "v1" {
			groupName = ""
		}
		for _, resource := range list.APIResources {
			for _, verb := range verbs {
				asked++
				slots <- struct{}{}
				group.Go(func() {
					defer func() { <-slots }()
					name, subresource, _ := strings.Cut(resource.Name, "/")
					review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
						User: account(program), Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + systemNamespace, "system:authenticated"},
						ResourceAttributes: &authorizationv1.ResourceAttributes{
							Namespace: namespace, Group: groupName, Resource: name, Subresource: subresource, Verb: verb,
						},
					}}
					answer, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
					if err != nil {
						t.Errorf("ask about %s %s: %v", verb, resource.Name, err)
						return
					}
					if answer.Status.Allowed {
						mu.Lock()
						defer mu.Unlock()
						w := word(verb, groupName, resource.Name)
						if rights[program].servers != nil && subresource == "scale" {
							w = verb + " " + resource.Name + "." + groupName // of Servers alone
						}
						found[w] = true
					}
				})
			}
		}
	}
	group.Wait()
	all := make([]string, 0, len(found))
	for w := range found {
		all = append(all, w)
	}
	slices.Sort(all)
	return all, asked
}

func word(verb, group, resource string) string {
	switch {
	case strings.HasSuffix(resource, "/scale"):
		return verb + " */scale"
	case group == "":
		return verb + " " + resource
	}
	return verb + " " + resource + "." + group
}

func account(program string) string {
	return fmt.Sprintf("system:serviceaccount:%s:%s", systemNamespace, program)
}

// install applies what gives the programs their rights.
func install(ctx context.Context, t *testing.T) *kubernetes.Clientset {
	t.Helper()
	config := fixture.Config(t)
	config.QPS = -1
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"namespace", "crd", "rbac", "api"} {
		if err := manifests.Apply(ctx, c, "tester", build(t, fixture.Path("config", part)), nil); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// The API server takes a moment to know of the bindings.
	services := authorizationv1.ResourceAttributes{Namespace: "default", Resource: "services"}
	err = fixture.Poll(ctx, func() error {
		if got := verbsOn(ctx, t, admin, services); !slices.Contains(got, "list") {
			return fmt.Errorf("the operator may %v Services", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return admin
}

// TestTheRightToFinalizersIsNeeded shows what the rights are for that no request
// ever names: an API server may want them of whoever makes an object that keeps
// its owner from being deleted, as the operator's do.
func TestTheRightToFinalizersIsNeeded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	admin := install(ctx, t)
	role, err := admin.RbacV1().ClusterRoles().Get(ctx, "dormouse-operator", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const without = "without-finalizers"
	rules := slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Resources, "elasticservices/finalizers")
	})
	_, err = admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: without}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: without},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: without},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: without}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, time.Minute, "the API server knows of the ClusterRoleBinding", func(ctx context.Context) error {
		answer, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: without, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "create", Resource: "services"}},
		}, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New("it may not make Services")
		}
		return err
	})
	for _, o := range owning() {
		kind := fmt.Sprintf("%T", o)
		if err := makeAs(ctx, t, account("dormouse-operator"), o); err != nil {
			t.Errorf("%s with the operator's rights: %v", kind, err)
		}
		if err := makeAs(ctx, t, without, o); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "finalizers") {
			t.Errorf("%s without the right to finalizers: %v, want it refused for that", kind, err)
		}
	}
}

// owning are what the operator makes for each of its kinds, as much as matters.
func owning() []client.Object {
	meta := func(kind string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: "lobby", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "dormouse.dev/v1alpha1", Kind: kind, Name: "lobby", UID: "1", Controller: new(true), BlockOwnerDeletion: new(true),
		}}}
	}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game"}}}
	return []client.Object{
		&discoveryv1.EndpointSlice{
			ObjectMeta: meta("ElasticService"), AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.9"}}},
			Ports:     []discoveryv1.EndpointPort{{Port: new(int32(10000)), Protocol: new(corev1.ProtocolTCP)}},
		},
		&corev1.Pod{ObjectMeta: meta("Server"), Spec: pod},
		&v1alpha1.Server{ObjectMeta: meta("Fleet"), Spec: v1alpha1.ServerSpec{Template: corev1.PodTemplateSpec{Spec: pod}}},
		&batchv1.Job{ObjectMeta: meta("Backup"), Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: pod.Containers,
		}}}},
	}
}

// scheme has Kubernetes' kinds and ours.
func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

// makeAs makes an object in a dry run, as a user.
func makeAs(ctx context.Context, t *testing.T, user string, o client.Object) error {
	t.Helper()
	made, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		t.Fatalf("%T is no object", o)
	}
	return clientAs(t, user).Create(ctx, made, client.DryRunAll)
}

// clientAs is a user's client.
func clientAs(t *testing.T, user string) client.Client {
	t.Helper()
	config := fixture.Config(t)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	as, err := client.New(config, client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return as
}
