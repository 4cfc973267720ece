package gameserver

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Only a disk that was created for this Server goes with it: one that was there before has
// somebody's world on it.
func TestADiskIsTheServersThatItWasCreatedFor(t *testing.T) {
	born := metav1.NewTime(time.Unix(1000, 0))
	s := full()
	s.CreationTimestamp = born
	disk := s.Spec.Storage[0]
	other := s.DeepCopy()
	other.UID = "earlier"
	old := func(seconds int64, labels map[string]string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: claimName(s, disk), Labels: labels, CreationTimestamp: metav1.NewTime(time.Unix(1000+seconds, 0)),
		}}
	}
	label := map[string]string{wellknown.ServerLabel: s.Name}
	tests := map[string]struct {
		claim *corev1.PersistentVolumeClaim
		want  bool
	}{
		"its own":                                  {buildClaim(s, disk, nil), true},
		"of a former Server of the name":           {buildClaim(other, disk, nil), false},
		"by an earlier version":                    {old(1, label), true},
		"by an earlier version, for a former one":  {old(-1, label), false},
		"a user's, whatever its age":               {old(1, nil), false},
		"a user's with somebody else's annotation": {buildClaim(&v1alpha1.Server{}, disk, nil), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := createdFor(s, test.claim); got != test.want {
				t.Errorf("the disk counts as created for the Server: %t, want %t", got, test.want)
			}
		})
	}
}

// A call of the REST API says of the server's disk that it is to go, whichever server of the number it
// was made for. Others keep the disk of the one before.
func TestAHostedServersDiskGoesThoughAnEarlierOneLeftIt(t *testing.T) {
	left := map[string]string{managedByLabel: wellknown.ManagedBy, wellknown.ServerLabel: "server-7"}
	for name, c := range map[string]struct {
		server, claim map[string]string
		want          bool
	}{
		"a hosted server's":        {map[string]string{wellknown.HostedGameLabel: "chess"}, left, true},
		"another Server's":         {nil, left, false},
		"a disk that a user made":  {map[string]string{wellknown.HostedGameLabel: "chess"}, nil, false},
		"the disk of another name": {map[string]string{wellknown.HostedGameLabel: "chess"}, map[string]string{managedByLabel: wellknown.ManagedBy, wellknown.ServerLabel: "server-70"}, false},
	} {
		s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: "server-7", UID: "later", Labels: c.server}}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Labels: c.claim, Annotations: map[string]string{wellknown.ServerUIDAnnotation: "earlier"}}}
		if got := hosts(s, claim) || createdFor(s, claim); got != c.want {
			t.Errorf("%s goes with the Server: %v, want %v", name, got, c.want)
		}
	}
}

// A Server that players are on has its earlier template still, and a GameType that is undone starts more of them.
func TestADiskGoesWithItsOwnerWhereThatSaysSoNow(t *testing.T) {
	const keep, drop = v1alpha1.StorageRetain, v1alpha1.StorageDelete
	storage := func(on v1alpha1.StorageOnDelete) []v1alpha1.StorageSpec {
		return []v1alpha1.StorageSpec{{Name: "world", OnDelete: on}}
	}
	for name, c := range map[string]struct {
		server, fleet, gameType v1alpha1.StorageOnDelete
		want                    types.UID
	}{
		"its Fleet's":                          {drop, drop, "", "fleet"},
		"its Fleet's, which keeps it now":      {drop, keep, "", ""},
		"its Fleet's, which kept it then":      {keep, drop, "", ""},
		"its GameType's":                       {drop, drop, drop, "game"},
		"its GameType's, which keeps it now":   {drop, drop, keep, ""},
		"its GameType's, of a later revision":  {keep, keep, drop, ""},
		"its GameType's, of which it is gone":  {drop, drop, "none", "game"},
		"its GameType's, which isn't there":    {drop, drop, "unknown", "game"},
		"its GameType's, as earlier revisions": {drop, keep, drop, "game"},
	} {
		gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival", UID: "game"}}
		f := &v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival-1", UID: "fleet"}}
		s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{
			Namespace: "games", Name: "survival-0", UID: "server", Labels: map[string]string{wellknown.PlaceLabel: "0"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f, v1alpha1.GroupVersion.WithKind("Fleet"))},
		}}
		s.Spec.Storage, f.Spec.Template.Spec.Storage = storage(c.server), storage(c.fleet)
		objects := []client.Object{f}
		if c.gameType != "" {
			f.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(gt, v1alpha1.GroupVersion.WithKind("GameType"))}
			if c.gameType != "none" {
				gt.Spec.Template.Spec.Storage = storage(c.gameType)
			}
			if c.gameType != "unknown" {
				objects = append(objects, gt)
			}
		}
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		w, err := (&Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}).worldOf(t.Context(), s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got types.UID
		for _, o := range buildClaim(s, s.Spec.Storage[0], w).OwnerReferences {
			got = o.UID
		}
		if got != c.want {
			t.Errorf("%s: the disk goes with %q, want %q", name, got, c.want)
		}
	}
}
