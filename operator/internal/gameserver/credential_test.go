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
	"dormouse.dev/dormouse/operator/internal/gameserver/podbuilder"
	"dormouse.dev/dormouse/operator/internal/reportkeys"
)

// A Pod whose Secret somebody has deleted gets it again.
func TestAKeyThatIsMissingIsMadeAgain(t *testing.T) {
	t.Parallel()
	waiting := func(container, reason string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{wellknown.ReportKeyAnnotation: "abc"}}}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{
			{Name: container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}},
		}
		return pod
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"the sidecar waits for it": {waiting(wellknown.SidecarContainer, "CreateContainerConfigError"), "abc"},
		"behind the game, too": {func() *corev1.Pod {
			p := waiting(wellknown.SidecarContainer, "CreateContainerConfigError")
			p.Status.ContainerStatuses = append([]corev1.ContainerStatus{{Name: "game"}}, p.Status.InitContainerStatuses...)
			p.Status.InitContainerStatuses = nil
			return p
		}(), "abc"},
		"it waits for an image":   {waiting(wellknown.SidecarContainer, "ImagePullBackOff"), ""},
		"another container waits": {waiting("fetch", "CreateContainerConfigError"), ""},
		"a Pod that has no such key": {func() *corev1.Pod {
			p := waiting(wellknown.SidecarContainer, "CreateContainerConfigError")
			p.Annotations = nil
			return p
		}(), ""},
	} {
		if got := lacksKey(c.pod); got != c.want {
			t.Errorf("%s: key %q is to be made again, want %q", name, got, c.want)
		}
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
		if _, err := r.apply(t.Context(), s, observed{pod: pod}, plan{restoreKey: "abc"}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err := world.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{})
		if replaced := apierrors.IsNotFound(err); replaced != c.replaced {
			t.Errorf("%s: its Pod is deleted %t (%v), want %t", name, replaced, err, c.replaced)
		}
	}
}
