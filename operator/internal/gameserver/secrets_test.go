package gameserver

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/operator/internal/gameserver/planner"
	"dormouse.dev/dormouse/operator/internal/gameserver/podbuilder"
	"dormouse.dev/dormouse/operator/internal/reportkeys"
)

// A Secret that somebody deleted is made again. A sidecar that runs has the code before, so a game that
// waits for its code gets another Pod; one that runs goes on.
func TestACodeThatWasDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError"}}
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
			p := planner.Make(r.Now(), s, planner.Observed{Pod: pod})
			if _, err := r.apply(t.Context(), s, planner.Observed{Pod: pod}, p); err != nil {
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

// keys are those of a cluster whose namespaces take Secrets, or not.
type keys struct{ failed error }

func (k keys) Provide(context.Context, string) (string, error) {
	if k.failed != nil {
		return "", k.failed
	}
	return "abc", nil
}

func (k keys) Restore(context.Context, string, string) error { return k.failed }

// A sidecar gets a key where it can sign and there is one, and else a token.
func TestASidecarThatCannotSignHasAToken(t *testing.T) {
	t.Parallel()
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", errors.New("exceeded quota"))
	template := func(credential string) *corev1.PodTemplate {
		p := &corev1.PodTemplate{}
		p.Template.Annotations = map[string]string{wellknown.ReportCredentialAnnotation: credential}
		return p
	}
	for name, c := range map[string]struct {
		keys     Keys
		template *corev1.PodTemplate
		want     string
	}{
		"it can sign":                     {keys{}, template("Key"), "abc"},
		"one of an earlier version":       {keys{}, &corev1.PodTemplate{}, ""},
		"one of a version to come":        {keys{}, template("Other"), ""},
		"the namespace takes no Secret":   {keys{quota}, template("Key"), ""},
		"an operator that has no Secrets": {nil, template("Key"), ""},
	} {
		if got := (&Reconciler{Keys: c.keys}).reportKey(t.Context(), full(), c.template); got != c.want {
			t.Errorf("%s: it gets key %q, want %q", name, got, c.want)
		}
	}
}

// A Pod that will never get its key makes room for one with a token. What time resolves is waited
// for.
func TestAKeyThatCannotBeMadeIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failed error
		never  bool
	}{
		"it is made":       {nil, false},
		"a quota":          {apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", errors.New("exceeded quota")), true},
		"there is no such": {reportkeys.ErrUnknown, true},
		"no API server":    {apierrors.NewServiceUnavailable("later"), false},
	} {
		if never := (&Reconciler{Keys: keys{c.failed}}).restoreKey(t.Context(), full(), "abc"); never != c.never {
			t.Errorf("%s: given up %t, want %t", name, never, c.never)
		}
	}
}

// Such a Pod is replaced, unless its game runs.
func TestAPodThatNeverGetsItsKeyIsReplaced(t *testing.T) {
	t.Parallel()
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", errors.New("exceeded quota"))
	for name, c := range map[string]struct {
		failed   error
		running  bool
		replaced bool
	}{
		"it never gets it": {failed: quota, replaced: true},
		"it gets it":       {},
		"it may get it":    {failed: apierrors.NewServiceUnavailable("later")},
		"its sidecar has crashed beside the game": {failed: quota, running: true},
	} {
		s := full()
		pod := podbuilder.Build(s, sidecar, []int32{7000, 7001, 0}, true)
		if c.running {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "game", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		}
		world := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(pod).WithStatusSubresource(pod).Build()
		if err := world.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		r := &Reconciler{Client: world, Keys: keys{c.failed}}
		r.Init()
		if _, err := r.apply(t.Context(), s, planner.Observed{Pod: pod}, planner.Plan{RestoreKey: "abc"}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err := world.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{})
		if replaced := apierrors.IsNotFound(err); replaced != c.replaced {
			t.Errorf("%s: its Pod is deleted %t (%v), want %t", name, replaced, err, c.replaced)
		}
	}
}
