package gameserver

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
