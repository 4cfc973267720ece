package security

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/dev/devcluster/audit"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// leaseName is the Lease by which the operator's replicas choose a leader.
const leaseName = "operator.dormouse.dev"

// ownSecret is the operator's Secret, with the certificate of its webhook and the keys for reports.
const ownSecret = "dormouse-operator"

const finalizersReason = "admission asks for it when an object is made that keeps its owner" +
	" from being deleted; the API-level tests show that without it such a write is refused"

const unsettledReason = "it is used where a client comes in the moment when a target goes to zero;" +
	" the API-level tests show it"

const filesReason = "it is used where a Server or a GameType has spec.files; the API-level tests of" +
	" operator/internal/test/api/files show it"

const backupReason = "nothing is copied in this suite; the API-level tests of Backups have the operator's" +
	" rights and use it"

// unseen are rights that the requests don't show, and why they are needed.
var unseen = map[right]string{
	{"", "dormouse.dev", "elasticservices/finalizers", "update"}: finalizersReason,
	{"", "dormouse.dev", "servers/finalizers", "update"}:         finalizersReason,
	{"", "dormouse.dev", "fleets/finalizers", "update"}:          finalizersReason,
	{"", "dormouse.dev", "gametypes/finalizers", "update"}:       finalizersReason,
	{"", "events.k8s.io", "events", "patch"}: "an event that repeats on the same version of an object is written onto the first;" +
		" nearly every event of ours comes with a write of the object",
	{"", "dormouse.dev", "allocations", "delete"}: "one that is over is deleted after an hour; the tests of" +
		" operator/internal/allocation have a clock that shows it",
	{"", "apps", "deployments", "create"}:                 filesReason,
	{"", "apps", "deployments", "patch"}:                  filesReason,
	{"", "apps", "deployments", "delete"}:                 filesReason,
	{"", "dormouse.dev", "elasticservices", "delete"}:     filesReason,
	{"", "apps", "replicasets", "get"}:                    unsettledReason,
	{"", "dormouse.dev", "fleets", "get"}:                 unsettledReason,
	{"", "dormouse.dev", "gametypes", "get"}:              unsettledReason,
	{"", "dormouse.dev", "restores/finalizers", "update"}: finalizersReason,
	{"", "dormouse.dev", "backups", "get"}: "what an earlier leader began is looked at again by name; the tests of" +
		" operator/internal/test/api/restore have such a leader",

	{"", "dormouse.dev", "backups", "create"}:                    backupReason,
	{"", "dormouse.dev", "backups", "patch"}:                     backupReason,
	{"", "dormouse.dev", "backups", "delete"}:                    backupReason,
	{"", "dormouse.dev", "backups/status", "patch"}:              backupReason,
	{"", "dormouse.dev", "backups/finalizers", "update"}:         finalizersReason,
	{"", "batch", "jobs", "get"}:                                 backupReason,
	{"", "batch", "jobs", "create"}:                              backupReason,
	{"", "batch", "jobs", "delete"}:                              backupReason,
	{"", "snapshot.storage.k8s.io", "volumesnapshots", "get"}:    backupReason,
	{"", "snapshot.storage.k8s.io", "volumesnapshots", "create"}: backupReason,
	{"", "snapshot.storage.k8s.io", "volumesnapshots", "patch"}:  backupReason,
	{"", "snapshot.storage.k8s.io", "volumesnapshots", "delete"}: backupReason,
}

// keyPaths are what tokens are checked with; Kubernetes' own role
// system:service-account-issuer-discovery lets each program read them.
var keyPaths = []string{"/.well-known/openid-configuration", "/openid/v1/jwks"}

// TestEachRightIsUsedAndNoneIsMissing lives through all that the programs do,
// and then compares what they were allowed with what they asked for.
//
// The right to "*/scale" of any group is needed because a target may be of any
// kind; that get and update of some scale are used is all that can be shown.
func TestEachRightIsUsedAndNoneIsMissing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), suite.TestTimeout)
	defer cancel()
	since := time.Now()
	restart(ctx, t)
	live(ctx, t)
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			rights, err := granted(suite.Cluster.Repo, program)
			if err != nil {
				t.Fatal(err)
			}
			entries, err := settled(ctx, rights, program, since)
			if err != nil {
				t.Error(err)
			}
			compare(t, rights, entries)
		})
	}
}

// settled reads what a program asked for, again and again until each right was
// used or it takes too long: events and the like come a little later.
func settled(ctx context.Context, rights []right, program string, since time.Time) ([]audit.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	user := fmt.Sprintf("system:serviceaccount:%s:%s", env.SystemNamespace, program)
	for {
		all, err := suite.Cluster.Cluster.Audit(since)
		if err != nil {
			return nil, err
		}
		entries := slices.DeleteFunc(all, func(e audit.Entry) bool { return e.User != user })
		counts := used(rights, entries)
		if !slices.ContainsFunc(rights, func(r right) bool { return counts[r] == 0 && unseen[r] == "" }) {
			return entries, nil
		}
		select {
		case <-ctx.Done():
			return entries, nil
		case <-time.After(time.Second):
		}
	}
}

func compare(t *testing.T, rights []right, entries []audit.Entry) {
	t.Helper()
	if len(entries) == 0 {
		t.Fatal("the API server's audit log has no request of it: an API server that an older source started keeps none; take the cluster down (make down) and up again")
	}
	counts := used(rights, entries)
	var table strings.Builder
	for _, r := range rights {
		switch reason := unseen[r]; {
		case reason != "":
			fmt.Fprintf(&table, "      %s: %s\n", r, reason)
		case counts[r] == 0:
			t.Errorf("it may %s, and never did: take the right away", r)
		default:
			fmt.Fprintf(&table, "%5d %s\n", counts[r], r)
		}
	}
	t.Logf("how often each right was used:\n%s", &table)
	refused := map[string]bool{}
	paths := map[string]bool{}
	for _, e := range entries {
		paths[e.Path] = true
		// In a namespace that ends, admission refuses what RBAC allows.
		ending := !e.Forbidden && strings.Contains(e.Message, "because it is being terminated")
		if e.Code == http.StatusForbidden && !ending {
			refused[fmt.Sprintf("%s %s: %s", e.Verb, e.Path, e.Message)] = true
		}
	}
	for what := range refused {
		t.Errorf("it was refused: %s", what)
	}
	for _, path := range keyPaths {
		if !paths[path] {
			t.Errorf("it never read %s: then it needs no right to it", path)
		}
	}
}

// restart starts everything anew, so that caches are filled and a leader is
// found. The Lease goes first: a cluster has none before the first leader.
func restart(ctx context.Context, t *testing.T) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: env.SystemNamespace, Name: leaseName}}
	if err := suite.Cluster.Client.Delete(ctx, lease); err != nil {
		t.Fatalf("delete Lease %s: %v", leaseName, err)
	}
	// Without a certificate, an operator makes one.
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: env.SystemNamespace, Name: ownSecret}}
	if err := suite.Cluster.Client.Patch(ctx, secret, client.RawPatch(types.MergePatchType, []byte(`{"data":null}`))); err != nil {
		t.Fatalf("empty Secret %s: %v", ownSecret, err)
	}
	before := map[string][]corev1.Pod{}
	for _, program := range programs {
		pods, err := podsOf(ctx, program)
		if err != nil {
			t.Fatal(err)
		}
		before[program] = pods
		for _, pod := range pods {
			if err := suite.Cluster.Client.Delete(ctx, &pod); err != nil {
				t.Fatalf("delete Pod %s: %v", pod.Name, err)
			}
		}
	}
	for program, pods := range before {
		twoReady(ctx, t, program, pods...)
	}
}

// live does with games all that people do with them.
func live(ctx context.Context, t *testing.T) {
	t.Helper()
	_, first := suite.Namespace(t)
	second := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-ending-"}}
	if err := suite.Cluster.Client.Create(ctx, second); err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	game := func(name string, change func(*env.Game)) env.Game {
		g := env.Game{Namespace: first, Name: name, TCP: []int32{7000}, Probe: true, Trigger: true, SleepAfter: time.Second}
		change(&g)
		if err := suite.Cluster.Create(ctx, g); err != nil {
			t.Fatal(err)
		}
		return g
	}
	selected := game("selected", func(*env.Game) {})
	selectorless := game("selectorless", func(g *env.Game) { g.Selectorless = true })
	stateful := game("stateful", func(g *env.Game) { g.SleepAfter = 0 })
	slow := game("slow", func(g *env.Game) { g.BootDelay, g.SleepAfter = 12*time.Second, 0 })
	stuck := game("stuck", func(g *env.Game) { g.Change = withoutItsVolume })
	left := game("left", func(g *env.Game) { g.Namespace = second.Name })
	toStatefulSet(ctx, t, stateful)

	liveServers(ctx, t)
	liveGameType(ctx, t)
	liveAllocation(ctx, t, first)
	waitAll(ctx, t, v1alpha1.PhaseAsleep, selected, selectorless, stateful, slow, stuck, left)
	// The operator looks into what isn't up within some seconds: at the pods, and at
	// the events of one that doesn't tell by itself.
	suite.Scale(ctx, t, stuck, 1)
	playOnce(ctx, t, selected, selectorless)
	waitAll(ctx, t, v1alpha1.PhaseAsleep, selected, selectorless)
	playOnce(ctx, t, stateful, slow, selectorless)

	// What is left behind: a game that was given up, and one whose namespace goes.
	for _, g := range []env.Game{selected, selectorless} {
		es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name}}
		if err := suite.Cluster.Client.Delete(ctx, es); err != nil {
			t.Fatalf("delete ElasticService %s: %v", g.Key(), err)
		}
	}
	if err := suite.Cluster.Client.Delete(ctx, second); err != nil {
		t.Fatalf("delete namespace %s: %v", second.Name, err)
	}
	err := env.WaitUntil(ctx, "what was deleted is gone", func(ctx context.Context) (bool, error) {
		var list v1alpha1.ElasticServiceList
		err := suite.Cluster.Client.List(ctx, &list)
		gone := !slices.ContainsFunc(list.Items, func(es v1alpha1.ElasticService) bool { return !es.DeletionTimestamp.IsZero() })
		return err == nil && gone, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// withoutItsVolume keeps a game's pods from ever starting.
func withoutItsVolume(d *appsv1.Deployment) {
	d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "missing", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "missing"}},
	}}}
	d.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "missing", MountPath: "/missing"}}
}

// playOnce lets one player play each of the games, at once.
func playOnce(ctx context.Context, t *testing.T, games ...env.Game) {
	t.Helper()
	errs := make(chan error, len(games))
	for _, g := range games {
		go func() { errs <- play(ctx, g) }()
	}
	var all []error
	for range games {
		all = append(all, <-errs)
	}
	if err := errors.Join(all...); err != nil {
		t.Fatal(err)
	}
}

func play(ctx context.Context, g env.Game) error {
	address, err := suite.Cluster.ClusterIP(ctx, g.Key(), g.TCP[0], corev1.IPv4Protocol)
	if err != nil {
		return err
	}
	if _, err := suite.PlayOnce(ctx, "tcp", address); err != nil {
		return fmt.Errorf("play %s: %w", g.Key(), err)
	}
	// Until players come without the resolver.
	_, err = suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe)
	return err
}

func waitAll(ctx context.Context, t *testing.T, phase v1alpha1.Phase, games ...env.Game) {
	t.Helper()
	for _, g := range games {
		es, err := suite.Cluster.WaitPhase(ctx, g.Key(), phase, v1alpha1.ModeProxy)
		if err != nil {
			t.Fatal(err)
		}
		if err := suite.Cluster.WaitRouted(ctx, es, 1); err != nil {
			t.Fatal(err)
		}
	}
}

// toStatefulSet makes a StatefulSet of a game's Deployment.
func toStatefulSet(ctx context.Context, t *testing.T, g env.Game) {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), d); err != nil {
		t.Fatalf("read Deployment %s: %v", g.Key(), err)
	}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name},
		Spec:       appsv1.StatefulSetSpec{Replicas: new(int32), Selector: d.Spec.Selector, Template: d.Spec.Template, ServiceName: g.Name},
	}
	if err := suite.Cluster.Client.Create(ctx, set); err != nil {
		t.Fatalf("create StatefulSet %s: %v", g.Key(), err)
	}
	if err := suite.Cluster.Client.Delete(ctx, d); err != nil {
		t.Fatalf("delete Deployment %s: %v", g.Key(), err)
	}
	es := &v1alpha1.ElasticService{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), es); err != nil {
		t.Fatalf("read ElasticService %s: %v", g.Key(), err)
	}
	original := es.DeepCopy()
	es.Spec.ScaleTargetRef.Kind = "StatefulSet"
	if err := suite.Cluster.Client.Patch(ctx, es, client.MergeFrom(original)); err != nil {
		t.Fatalf("point ElasticService %s at the StatefulSet: %v", g.Key(), err)
	}
}

// liveAllocation asks for a Server of a game that there isn't, and waits for the answer.
func liveAllocation(ctx context.Context, t *testing.T, namespace string) {
	t.Helper()
	a := &v1alpha1.Allocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "match"},
		Spec:       v1alpha1.AllocationSpec{TargetRef: &v1alpha1.AllocationTarget{Name: "nobodys"}},
	}
	if err := suite.Cluster.Client.Create(ctx, a); err != nil {
		t.Fatal(err)
	}
	_, err := env.Wait(ctx, suite.Cluster, &v1alpha1.AllocationList{}, client.ObjectKeyFromObject(a), "refused", func(a *v1alpha1.Allocation) bool {
		return a.Status.State == v1alpha1.AllocationRefused
	})
	if err != nil {
		t.Fatal(err)
	}
}
