package disks

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

var survival = types.NamespacedName{Namespace: "games", Name: "survival"}

// newPod has the disks of the Server.
func newPod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: name, UID: types.UID(name), Labels: map[string]string{wellknown.DisksLabel: "survival"},
	}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func servesFiles(p *corev1.Pod) { p.Labels[wellknown.FilesLabel] = "survival" }
func atItsGate(p *corev1.Pod) {
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a-tenant/queue"}, {Name: wellknown.FilesGate}}
}
func over(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
func ofServer(p *corev1.Pod) {
	s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: "survival", UID: "s"}}
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s, v1alpha1.GroupVersion.WithKind("Server"))}
}

func ofJob(p *corev1.Pod) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "restore-undo", UID: "j"}}
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
}
func noLabels(p *corev1.Pod) { p.Labels = nil }

func TestWhoHasTheDisks(t *testing.T) {
	for name, c := range map[string]struct {
		pod         *corev1.Pod
		others, own []string
		game, files bool
	}{
		"the game":                       {newPod("survival", ofServer), []string{"survival"}, nil, true, false},
		"a game of an earlier version's": {newPod("survival", ofServer, noLabels), []string{"survival"}, nil, true, false},
		"a game that has ended":          {newPod("survival", ofServer, over), nil, nil, false, false},
		"a user's Pod of that name":      {newPod("survival", noLabels), nil, nil, false, false},
		"a user's import":                {newPod("import"), []string{"import"}, nil, false, false},
		"what serves the files":          {newPod("f", servesFiles), []string{"f"}, nil, false, true},
		"what is to serve them, gated":   {newPod("f", servesFiles, atItsGate), nil, nil, false, false},
		"the Job's own":                  {newPod("j", ofJob), nil, []string{"j"}, false, false},
	} {
		live := fake.NewClientBuilder().WithObjects(c.pod).Build()
		u, err := UsersOf(t.Context(), live, survival, OfJob("restore-undo"))
		if err != nil || !slices.Equal(u.Others, c.others) || !slices.Equal(u.Own, c.own) || u.Game != c.game || u.OnlyFiles() != c.files {
			t.Errorf("%s: %+v (%v)", name, u, err)
		}
	}
}

// paged is an API server that gives lists in parts, as it does to who asks for a limit.
type paged struct{ client.Client }

func (p paged) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	for _, opt := range opts {
		opt.ApplyToList(&o)
	}
	limit, from := int(o.Limit), 0
	o.Limit = 0
	if o.Continue != "" {
		from, _ = strconv.Atoi(o.Continue)
	}
	o.Continue = ""
	err := p.Client.List(ctx, list, &o)
	if pods, ok := list.(*corev1.PodList); ok && limit > 0 && err == nil {
		to := min(from+limit, len(pods.Items))
		if to < len(pods.Items) {
			pods.Continue = strconv.Itoa(to)
		}
		pods.Items = pods.Items[from:to]
	}
	return err
}

// Pods that have ended stay for long where nobody collects them.
func TestWhoHasTheDisksBesideManyThatHaveEnded(t *testing.T) {
	objects := []client.Object{newPod("z", servesFiles)}
	for i := range 2 * usersAtOnce {
		objects = append(objects, newPod(fmt.Sprintf("evicted-%03d", i), servesFiles, over))
	}
	u, err := UsersOf(t.Context(), paged{fake.NewClientBuilder().WithObjects(objects...).Build()}, survival, OfJob(""))
	if err != nil || u.First() != "z" {
		t.Errorf("the disks are said to be in use by %q (%v), want z", u.First(), err)
	}
}

// door is a table that is closed, or isn't.
type door struct{ closed, asked bool }

func (d *door) WaitForFiles(types.NamespacedName, time.Time) bool {
	d.asked = true
	return d.closed
}

// Only Pods that serve files end for a copy, with time for who is logged in, and only where a copy could
// begin then.
func TestWhatServesFilesMakesWayForACopy(t *testing.T) {
	for name, c := range map[string]struct {
		pods        []client.Object
		closed      bool
		asks, makes bool
	}{
		"it has waited long":           {[]client.Object{newPod("f", servesFiles)}, true, true, true},
		"it hasn't":                    {[]client.Object{newPod("f", servesFiles)}, false, true, false},
		"a user's Pod has them, too":   {[]client.Object{newPod("f", servesFiles), newPod("import")}, true, false, false},
		"nobody has them":              {nil, true, false, false},
		"one is at its gate":           {[]client.Object{newPod("f", servesFiles, atItsGate)}, true, false, false},
		"one has ended, one hasn't":    {[]client.Object{newPod("e", servesFiles, over), newPod("f", servesFiles)}, true, true, true},
		"a user's Pod, at no such one": {[]client.Object{newPod("import")}, true, false, false},
	} {
		var grace []int64
		cluster := &deletes{Client: fake.NewClientBuilder().WithObjects(c.pods...).Build(), grace: &grace}
		u, err := UsersOf(t.Context(), cluster, survival, OfJob(""))
		if err != nil {
			t.Fatal(err)
		}
		d := &door{closed: c.closed}
		if err := MakeWay(t.Context(), cluster, d, survival, &u, time.Now()); err != nil || d.asked != c.asks || (len(grace) == 1 && grace[0] == 4*3600) != c.makes {
			t.Errorf("%s: it asked: %t, and deletes with %v s (%v)", name, d.asked, grace, err)
		}
	}
}
