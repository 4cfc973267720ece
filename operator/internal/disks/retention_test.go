package disks

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// lists counts how often the API server is asked for a list, and refuses where it is to.
type lists struct {
	client.Client

	n       int
	refuses bool
}

func (l *lists) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if l.n++; l.refuses {
		return errors.New("try again")
	}
	return l.Client.List(ctx, list, opts...)
}

func TestDisksOutliveAnOwnerThatSaysSoNow(t *testing.T) {
	t.Parallel()
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival", UID: "gt"}}
	another := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}
	claim := func(server, disk, gameType string, owners ...types.UID) *corev1.PersistentVolumeClaim {
		c := BuildClaim("games", server, Labels(server, map[string]string{wellknown.GameTypeLabel: gameType}), nil, &v1alpha1.StorageSpec{Name: disk})
		c.OwnerReferences = []metav1.OwnerReference{another}
		for _, uid := range owners {
			c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{APIVersion: "dormouse.dev/v1alpha1", Kind: "GameType", Name: gameType, UID: uid})
		}
		return c
	}
	unnamed := claim("survival-4", "world", "survival", "gt") // of an earlier version
	delete(unnamed.Labels, wellknown.DiskLabel)
	owned := map[string]bool{} // which disks their owners take with them
	cluster := &lists{Client: fake.NewClientBuilder().WithObjects(
		claim("survival-0", "world", "survival", "gt"), claim("survival-2", "world", "survival", "gt"),
		claim("survival-0", "mods", "survival", "gt"), claim("survival-1", "world", "survival", "earlier"),
		claim("creative-0", "world", "creative", "other"), claim("survival-3", "world", "survival"), unnamed,
	).Build()}
	look := func() map[string]bool {
		var all corev1.PersistentVolumeClaimList
		if err := cluster.Client.List(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		clear(owned)
		for _, c := range all.Items {
			owned[c.Name] = len(c.OwnerReferences) > 1
			if c.OwnerReferences[0].UID != "x" {
				t.Errorf("%s has lost an owner of somebody else's: %v", c.Name, c.OwnerReferences)
			}
		}
		return owned
	}
	storage := func(world, mods v1alpha1.StorageOnDelete) []v1alpha1.StorageSpec {
		return []v1alpha1.StorageSpec{{Name: "world", OnDelete: world}, {Name: "mods", OnDelete: mods}}
	}
	var m Retention
	keep := func(what string, observed bool, s []v1alpha1.StorageSpec, asked int) {
		t.Helper()
		cluster.n = 0
		err := m.Keep(t.Context(), cluster, cluster, gt, client.MatchingLabels{wellknown.GameTypeLabel: "survival"}, s, observed)
		if (err != nil) != cluster.refuses || cluster.n != asked {
			t.Errorf("%s: the API server was asked %d times, want %d: %v", what, cluster.n, asked, err)
		}
	}

	all := storage(v1alpha1.StorageDelete, v1alpha1.StorageDelete)
	keep("an earlier leader has seen to it", true, all, 0)
	keep("only the number of replicas has changed", false, all, 0)
	if !look()["survival-2-world"] {
		t.Fatal("a disk outlives its owner though it is to go with it")
	}
	world := storage(v1alpha1.StorageRetain, v1alpha1.StorageDelete)
	cluster.refuses = true
	keep("it is changed, and the API server doesn't answer", false, world, 1)
	cluster.refuses = false
	keep("it is tried again", false, world, 1)
	want := map[string]bool{
		"survival-0-world": false, "survival-2-world": false, "survival-3-world": false, "survival-4-world": false,
		"survival-0-mods": true, "survival-1-world": true, "creative-0-world": true,
	}
	for name, is := range look() {
		if is != want[name] {
			t.Errorf("%s goes with its owner: %t, want %t", name, is, want[name])
		}
	}
	keep("nothing has changed since", false, world, 0)

	m = Retention{}
	keep("this leader is new, and nobody has seen to it", false, storage("", ""), 1)
	if look()["survival-0-mods"] {
		t.Error("a disk without a word on it goes with its owner")
	}
}
