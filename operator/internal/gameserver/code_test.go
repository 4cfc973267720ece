package gameserver

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/operator/internal/gameserver/podbuilder"
)

// A Secret that somebody deleted is made again. A sidecar that runs has the code before, so a game that
// waits for its code gets another Pod; one that runs goes on.
func TestACodeThatWasDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: configError}}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for name, c := range map[string]struct {
		sidecar, game   corev1.ContainerState
		there, unasked  bool
		restored, moves bool
	}{
		"both wait":                       {sidecar: waits, game: waits, restored: true},
		"the sidecar waits, the game not": {sidecar: waits, game: runs, restored: true},
		"the game waits, the sidecar not": {sidecar: runs, game: waits, restored: true, moves: true},
		"it waits for something else":     {sidecar: runs, game: waits, there: true},
		"nobody waits":                    {sidecar: runs, game: runs},
		"the API isn't asked for":         {sidecar: waits, game: waits, unasked: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := full()
			s.Annotations = map[string]string{wellknown.GameAPIAnnotation: "true"}
			pod := podbuilder.Build(s, sidecar, []int32{7000, 7001, 0}, true)
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: wellknown.SidecarContainer, State: c.sidecar}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "game", State: c.game}}
			if c.unasked {
				s.Annotations = nil
			}
			objects := []client.Object{pod}
			key := client.ObjectKey{Namespace: "games", Name: gameapi.SecretName("lobby", full().UID)}
			if c.there {
				objects = append(objects, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
			}
			world := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).WithStatusSubresource(pod).Build()
			if err := world.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
				t.Fatal(err)
			}
			r := &Reconciler{Client: world}
			r.Init()
			var p plan
			planRun(r.Now(), s, observed{pod: pod}, &p)
			if _, err := r.apply(t.Context(), s, observed{pod: pod}, p); err != nil {
				t.Fatal(err)
			}
			secret := &corev1.Secret{}
			err := world.Get(t.Context(), key, secret)
			if client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			namespace, server, ok := gameapi.Server(string(secret.Data[gameapi.SecretKey]))
			if ok != c.restored || ok && (namespace != "games" || server != "lobby" || !metav1.IsControlledBy(secret, s)) {
				t.Errorf("the Secret is %+v, restored %t; want %t", secret.ObjectMeta, ok, c.restored)
			}
			err = world.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{})
			if moves := apierrors.IsNotFound(err); moves != c.moves {
				t.Errorf("its Pod is deleted %t (%v), want %t", moves, err, c.moves)
			}
		})
	}
}
