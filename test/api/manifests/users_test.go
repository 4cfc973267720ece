package manifests_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// grant gives a user rights in the namespace default.
func grant(ctx context.Context, t *testing.T, admin *kubernetes.Clientset, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	if _, err := admin.RbacV1().Roles("default").Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
	if _, err := admin.RbacV1().RoleBindings("default").Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func elastic(name, apiVersion, kind, target string) *v1alpha1.ElasticService {
	return &v1alpha1.ElasticService{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       v1alpha1.ElasticServiceSpec{Service: name, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: apiVersion, Kind: kind, Name: target}},
	}
}

// Whoever has an ElasticService scale a workload must be allowed to scale it: the operator
// may scale anything.
func TestWhoMayNotScaleAWorkloadMayNotHaveItScaled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	admin := install(ctx, t)
	const user = "tenant"
	grant(ctx, t, admin, user,
		rbacv1.PolicyRule{APIGroups: []string{"dormouse.dev"}, Resources: []string{"elasticservices"}, Verbs: []string{"get", "create", "update", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, ResourceNames: []string{"mine"}, Verbs: []string{"patch"}},
		rbacv1.PolicyRule{APIGroups: []string{"dormouse.dev"}, Resources: []string{"gametypes/scale"}, Verbs: []string{"update"}},
		rbacv1.PolicyRule{APIGroups: []string{"example.com"}, Resources: []string{"foundries/scale", "torches/scale", "gateways/scale"}, Verbs: []string{"update"}},
	)
	refused := func(err error, what string) error {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "you may not scale "+what) {
			return fmt.Errorf("%s: want it refused for that, and not %w", what, err)
		}
		return nil
	}
	// The API server takes a moment to know of the policy.
	var err error
	for err = context.Canceled; err != nil && ctx.Err() == nil; {
		err = refused(makeAs(ctx, t, user, elastic("theirs", "apps/v1", "Deployment", "theirs")), "Deployment theirs")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, es := range []*v1alpha1.ElasticService{
		elastic("a", "apps/v1", "StatefulSet", "mine"), elastic("b", "example.com/v1", "Deployment", "mine"), elastic("c", "v1", "ReplicationController", "mine"),
		elastic("d", "dormouse.dev/v1alpha1", "Fleet", "mine"), elastic("e", "karpenter.sh/v1", "NodePool", "mine"),
	} {
		if err := refused(makeAs(ctx, t, user, es), es.Spec.ScaleTargetRef.Kind+" mine"); err != nil {
			t.Error(err)
		}
	}
	for _, es := range []*v1alpha1.ElasticService{
		elastic("f", "apps/v1", "Deployment", "mine"), elastic("g", "dormouse.dev/v1alpha1", "GameType", "duel"), elastic("h", "example.com/v1", "Foundry", "x"),
		elastic("i", "example.com/v2", "Torch", "x"), elastic("j", "example.com/v1", "Gateway", "x"),
	} {
		if err := makeAs(ctx, t, user, es); err != nil {
			t.Errorf("an ElasticService of %s: %v", es.Spec.ScaleTargetRef.Kind, err)
		}
	}
	// The operator makes those of GameTypes.
	if err := makeAs(ctx, t, account("dormouse-operator"), elastic("k", "dormouse.dev/v1alpha1", "GameType", "duel")); err != nil {
		t.Error(err)
	}

	// Another's may be changed, but for its target.
	theirs := elastic("theirs", "apps/v1", "Deployment", "theirs")
	c, err := client.New(fixture.Config(t), client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx, theirs); err != nil {
		t.Fatal(err)
	}
	as := clientAs(t, user)
	change := func(with func(*v1alpha1.ElasticService)) error {
		changed := theirs.DeepCopy()
		with(changed)
		return as.Patch(ctx, changed, client.MergeFrom(theirs), client.DryRunAll)
	}
	if err := change(func(es *v1alpha1.ElasticService) { es.Spec.SleepAfter = &metav1.Duration{Duration: time.Hour} }); err != nil {
		t.Error(err)
	}
	if err := change(func(es *v1alpha1.ElasticService) { es.Spec.ScaleTargetRef.Name = "mine" }); err != nil {
		t.Error(err)
	}
	if err := refused(change(func(es *v1alpha1.ElasticService) { es.Spec.ScaleTargetRef.Name = "others" }), "Deployment others"); err != nil {
		t.Error(err)
	}
}

// An ElasticService wakes others, and keeps them awake: who may do that may change those.
func TestWhoMayNotChangeOthersMayNotHaveThemWoken(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	admin := install(ctx, t)
	scales := rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, Verbs: []string{"update"}}
	games := rbacv1.PolicyRule{APIGroups: []string{"dormouse.dev"}, Resources: []string{"gametypes"}, Verbs: []string{"create"}}
	grant(ctx, t, admin, "waking-tenant", scales, games,
		rbacv1.PolicyRule{APIGroups: []string{"dormouse.dev"}, Resources: []string{"elasticservices"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{"dormouse.dev"}, Resources: []string{"elasticservices"}, ResourceNames: []string{"page"}, Verbs: []string{"get", "update", "patch"}},
	)
	grant(ctx, t, admin, "waking-owner", scales, games, rbacv1.PolicyRule{APIGroups: []string{"dormouse.dev"}, Resources: []string{"elasticservices"}, Verbs: []string{"create", "patch"}})
	page := elastic("page", "apps/v1", "Deployment", "page")
	page.Spec.WakeWith = []string{"database"}
	game := &v1alpha1.GameType{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "duel"},
		Spec: v1alpha1.GameTypeSpec{
			WakeWith: []string{"database"},
			Template: v1alpha1.ServerTemplate{Spec: v1alpha1.ServerSpec{
				Ports:    []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7000}},
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "registry.example/game:1"}}}},
			}},
		},
	}
	refused := func(err error) error {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "you may not change the ElasticServices of namespace default") {
			return fmt.Errorf("want it refused for that, and not %w", err)
		}
		return nil
	}
	// The API server takes a moment to know of the policy, and of the rights.
	var err error
	for err = context.Canceled; err != nil && ctx.Err() == nil; {
		err = refused(makeAs(ctx, t, "waking-tenant", page))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := refused(makeAs(ctx, t, "waking-tenant", game)); err != nil {
		t.Errorf("a GameType: %v", err)
	}
	if err := makeAs(ctx, t, "waking-tenant", elastic("page", "apps/v1", "Deployment", "page")); err != nil {
		t.Errorf("one that wakes nobody: %v", err)
	}
	for _, o := range []client.Object{page, game} {
		for _, user := range []string{"waking-owner", account("dormouse-operator")} {
			if _, is := o.(*v1alpha1.GameType); is && user != "waking-owner" {
				continue // the operator makes none
			}
			if err := makeAs(ctx, t, user, o); err != nil {
				t.Errorf("%T by %s: %v", o, user, err)
			}
		}
	}
}

// The same goes for whoever has a GameAutoscaler scale a game.
func TestWhoMayNotScaleAGameMayNotHaveItAutoscaled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	admin := install(ctx, t)
	const user = "autoscaling-tenant"
	grant(ctx, t, admin, user,
		rbacv1.PolicyRule{APIGroups: []string{"dormouse.dev"}, Resources: []string{"gameautoscalers"}, Verbs: []string{"create", "update", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{"dormouse.dev"}, Resources: []string{"gametypes/scale"}, Verbs: []string{"update"}},
		rbacv1.PolicyRule{APIGroups: []string{"dormouse.dev"}, Resources: []string{"fleets/scale"}, ResourceNames: []string{"mine"}, Verbs: []string{"patch"}},
	)
	scaler := func(kind v1alpha1.AutoscalerTargetKind, target string) *v1alpha1.GameAutoscaler {
		return &v1alpha1.GameAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "scaler"},
			Spec: v1alpha1.GameAutoscalerSpec{
				TargetRef: v1alpha1.AutoscalerTarget{Kind: kind, Name: target}, MaxReplicas: 2,
				Policies: []v1alpha1.AutoscalerPolicy{{Name: "spare", Buffer: &v1alpha1.BufferPolicy{Servers: new(intstr.FromInt32(1))}}},
			},
		}
	}
	// The API server takes a moment to know of the policy, and of the rights.
	var err error
	for err = context.Canceled; err != nil && ctx.Err() == nil; {
		err = makeAs(ctx, t, user, scaler(v1alpha1.AutoscalerTargetFleet, "theirs"))
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "you may not scale fleets theirs") {
			err = nil
		} else {
			err = fmt.Errorf("Fleet theirs: want it refused for that, and not %w", err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, gas := range []*v1alpha1.GameAutoscaler{scaler("", "any"), scaler(v1alpha1.AutoscalerTargetGameType, "any"), scaler(v1alpha1.AutoscalerTargetFleet, "mine")} {
		if err := makeAs(ctx, t, user, gas); err != nil {
			t.Errorf("a GameAutoscaler of %s %s: %v", gas.Spec.TargetRef.Kind, gas.Spec.TargetRef.Name, err)
		}
	}

	// Another's may be labelled, but its bounds scale, too.
	theirs := scaler(v1alpha1.AutoscalerTargetFleet, "theirs")
	c, err := client.New(fixture.Config(t), client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx, theirs); err != nil {
		t.Fatal(err)
	}
	as := clientAs(t, user)
	labelled, raised := theirs.DeepCopy(), theirs.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	raised.Spec.MinReplicas = new(int32(2))
	if err := as.Patch(ctx, labelled, client.MergeFrom(theirs), client.DryRunAll); err != nil {
		t.Errorf("a label: %v", err)
	}
	if err := as.Patch(ctx, raised, client.MergeFrom(theirs), client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "you may not scale fleets theirs") {
		t.Errorf("another minReplicas: want it refused for who may not scale, and not %v", err)
	}
}

// Who may view or edit a namespace may view or edit Dormouse's objects in it.
func TestKubernetesOwnRolesAreForDormousesKindsToo(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	admin := install(ctx, t)
	for name, c := range map[string]struct {
		label   string
		allowed []string
	}{
		"dormouse-view": {"rbac.authorization.k8s.io/aggregate-to-view", []string{"get", "list", "watch"}},
		"dormouse-edit": {"rbac.authorization.k8s.io/aggregate-to-edit", []string{"create", "update", "patch", "delete", "deletecollection"}},
	} {
		role, err := admin.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if role.Labels[c.label] != "true" {
			t.Errorf("%s has the labels %v", name, role.Labels)
		}
		_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-user"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		may := func(verb, resource, subresource string) bool {
			answer, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: name, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: "default", Group: "dormouse.dev", Resource: resource, Subresource: subresource, Verb: verb,
				},
			}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return answer.Status.Allowed
		}
		// The API server takes a moment to know of the binding.
		for !may(c.allowed[0], "elasticservices", "") && ctx.Err() == nil {
			continue
		}
		for _, resource := range []string{"elasticservices", "servers", "fleets", "gametypes", "gameautoscalers", "backups", "restores"} {
			for _, verb := range verbs {
				if got := may(verb, resource, ""); got != slices.Contains(c.allowed, verb) {
					t.Errorf("%s may %s %s: %v", name, verb, resource, got)
				}
				if got := may(verb, resource, "status"); got != (verb == "get" && name == "dormouse-view") {
					t.Errorf("%s may %s the status of %s: %v", name, verb, resource, got)
				}
			}
		}
		for _, resource := range []string{"servers", "fleets", "gametypes"} {
			if got := may("update", resource, "scale"); got != (name == "dormouse-edit") {
				t.Errorf("%s may scale %s: %v", name, resource, got)
			}
		}
	}
}
