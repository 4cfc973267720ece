package slowstart

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gamepod"
)

// A game that doesn't get ready says what is awaited, from whom, and what was last heard.
func TestASlowGameSaysWhatIsAwaited(t *testing.T) {
	t.Parallel()
	began := time.Date(2030, 1, 1, 8, 0, 0, 0, time.UTC)
	sdk := func(s *v1alpha1.Server, _ *corev1.Pod) { s.Spec.Readiness = v1alpha1.ServerReadinessSDK }
	probed := func(port string) func(*v1alpha1.Server, *corev1.Pod) {
		return func(s *v1alpha1.Server, _ *corev1.Pod) {
			s.Spec.Players = &v1alpha1.PlayersSpec{Probe: &v1alpha1.PlayersProbe{Type: v1alpha1.ProbeSource, Port: port}}
		}
	}
	for name, c := range map[string]struct {
		change  func(*v1alpha1.Server, *corev1.Pod)
		after   time.Duration
		awaited []string
	}{
		"not for a minute yet":  {sdk, 59 * time.Second, nil},
		"Ready is never called": {sdk, time.Minute, []string{"runs since 08:00:00 UTC", "hasn't called Ready through the SDK", "reported nothing"}},
		"what it said last": {func(s *v1alpha1.Server, p *corev1.Pod) {
			sdk(s, p)
			s.Status.Game = &v1alpha1.GameStatus{State: v1alpha1.GameStarting, PodUID: string(p.UID), Since: &metav1.Time{Time: began.Add(time.Second)}}
		}, time.Minute, []string{"last said Starting at 08:00:01 UTC"}},
		"of another Pod that counts for nothing": {func(s *v1alpha1.Server, p *corev1.Pod) {
			sdk(s, p)
			s.Status.Game = &v1alpha1.GameStatus{State: v1alpha1.GameReady, PodUID: "before"}
		}, time.Minute, []string{"reported nothing"}},
		"a probe of the first port":    {probed(""), time.Minute, []string{"hasn't answered a source query on port game (7000)", "speaks that protocol"}},
		"a probe of a port of its own": {probed("query"), time.Minute, []string{"on port query (7001)"}},
		"a game that doesn't run": {func(s *v1alpha1.Server, p *corev1.Pod) {
			sdk(s, p)
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{}
		}, time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"}}
			s.Spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7000}, {Name: "query", ContainerPort: 7001}}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "now", Annotations: map[string]string{gamepod.ContainerAnnotation: "game"}}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "game", State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(began)},
			}}}
			c.change(s, pod)
			awaited, slow := Awaited(began.Add(c.after), s, pod, 0)
			if slow != (c.awaited != nil) {
				t.Errorf("slow %t: %s", slow, awaited)
			}
			for _, part := range c.awaited {
				if !strings.Contains(awaited, part) {
					t.Errorf("%q doesn't say %q", awaited, part)
				}
			}
		})
	}
}

// A game that usually takes three minutes isn't called slow after one.
func TestAGameIsSlowByItsOwnMeasure(t *testing.T) {
	t.Parallel()
	b := &Boots{}
	began := time.Date(2030, 1, 1, 8, 0, 0, 0, time.UTC)
	s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "world-0", Labels: map[string]string{wellknown.GameTypeLabel: "world"}}}
	s.Spec.Readiness = v1alpha1.ServerReadinessSDK
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{gamepod.ContainerAnnotation: "game"}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "game", State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(began)},
	}}}
	slow := func(of *v1alpha1.Server, after time.Duration) bool {
		_, slow := Awaited(began.Add(after), of, pod, b.of(bootOf(of)))
		return slow
	}
	if slow(s, 59*time.Second) || !slow(s, time.Minute) {
		t.Error("a game whose boots nobody has seen isn't slow after a minute")
	}
	starting, ready := s.DeepCopy(), s.DeepCopy()
	starting.Status.State, ready.Status.State = v1alpha1.ServerStarting, v1alpha1.ServerReady
	b.Note(began.Add(3*time.Minute), starting, ready, pod)
	b.Note(began.Add(time.Hour), ready, ready, pod) // it was Ready before
	next := s.DeepCopy()
	next.Name = "world-1"
	if slow(next, 6*time.Minute-time.Second) || !slow(next, 6*time.Minute) {
		t.Errorf("a game that takes %s isn't slow after twice that", b.of(bootOf(next)))
	}
	other := s.DeepCopy()
	other.Labels = map[string]string{wellknown.GameTypeLabel: "other"}
	if !slow(other, time.Minute) {
		t.Error("another game has its measure")
	}
	unwritten, quick := other.DeepCopy(), other.DeepCopy()
	quick.Status.State = v1alpha1.ServerReady
	if b.Note(began.Add(2*time.Minute), unwritten, quick, pod); b.of(bootOf(other)) != 2*time.Minute {
		t.Errorf("a game that was ready before anybody wrote that it starts took %s", b.of(bootOf(other)))
	}
	for range 40 {
		b.Note(began.Add(10*time.Second), starting, ready, pod)
	}
	if usual := b.of(bootOf(s)); usual < 10*time.Second || usual > 11*time.Second {
		t.Errorf("after 40 boots of 10s it usually takes %s", usual)
	}
}

func TestTheBootsOfGamesAreBounded(t *testing.T) {
	t.Parallel()
	b := &Boots{}
	for i := range maxBoots + 10 {
		b.took(strconv.Itoa(i), time.Second)
	}
	if len(b.usual) != maxBoots || b.of(strconv.Itoa(maxBoots+9)) != time.Second {
		t.Errorf("%d are remembered", len(b.usual))
	}
}
