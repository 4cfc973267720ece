package diagnosis

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/reasons"
)

var t0 = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.Time{Time: t0.Add(time.Duration(seconds) * time.Second)}
}

// pod is one that was scheduled at t0, with one container in a state.
func pod(name string, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-pod", CreationTimestamp: at(0), OwnerReferences: []metav1.OwnerReference{
			{Kind: "ReplicaSet", UID: "rs-1", Controller: new(true)},
		}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "game", ReadinessProbe: &corev1.Probe{InitialDelaySeconds: 5}}}},
		Status: corev1.PodStatus{
			Phase:             corev1.PodPending,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "game", Image: "lobby:1", State: waits("ContainerCreating", "")}},
		},
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func waits(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func ended(code int32, reason string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: "the password is hunter2"}}
}

func runs(since int) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(since)}}
}

func state(s corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = s }
}

func before(s corev1.ContainerState, restarts int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].LastTerminationState, p.Status.ContainerStatuses[0].RestartCount = s, restarts
	}
}

func created(seconds int, replicaSet string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.CreationTimestamp = at(seconds)
		p.OwnerReferences[0].UID = "rs-1"
		if replicaSet != "" {
			p.OwnerReferences[0].UID = "rs-2"
		}
	}
}

func warning(of, reason, message string, seconds int) corev1.Event {
	e := corev1.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message, LastTimestamp: at(seconds)}
	e.InvolvedObject.UID = "uid-of-pod"
	if of == "target" {
		e.InvolvedObject.UID = "uid-of-target"
	}
	return e
}

func TestExplain(t *testing.T) {
	t.Parallel()
	type want struct {
		Reason string
		Wrong  bool
		Ask    bool
	}
	broken := func(reason string) want { return want{Reason: reason, Wrong: true} }
	startingStill := want{Reason: reasons.ServerStarting}
	for name, c := range map[string]struct {
		pods       []corev1.Pod
		conditions []metav1.Condition
		events     []corev1.Event
		now        int // seconds after t0; 0 is 10
		want       want
		says       []string
	}{
		"an image that can't be pulled": {
			pods: []corev1.Pod{pod("p", state(waits("ImagePullBackOff", "Back-off pulling image \"lobby:1\": not found.")))},
			want: broken(reasons.ImageUnavailable),
			says: []string{"Container game of pod p", "its image lobby:1", `(ImagePullBackOff: Back-off pulling image "lobby:1": not found)`, "correct the image's name"},
		},
		"an image that may not be pulled": {
			pods: []corev1.Pod{pod("p", state(waits("ErrImageNeverPull", "it is not present")))}, want: broken(reasons.ImageUnavailable),
		},
		"an image whose name is none": {
			pods: []corev1.Pod{pod("p", state(waits("InvalidImageName", "")))}, want: broken(reasons.ImageUnavailable), says: []string{"(InvalidImageName)"},
		},
		"an image of an init container": {
			pods: []corev1.Pod{pod("p", func(p *corev1.Pod) {
				p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "world", State: waits("ErrImagePull", "denied")}}
			})},
			want: broken(reasons.ImageUnavailable), says: []string{"Container world"},
		},
		"a crash loop": {
			pods: []corev1.Pod{pod("p", state(waits("CrashLoopBackOff", "back-off 10s")), before(ended(3, "Error"), 4))},
			want: broken(reasons.ServerCrashing), says: []string{"has ended 4 times, last with exit code 3 (Error)", "kubectl logs --previous"},
		},
		"a container that has just crashed": {
			pods: []corev1.Pod{pod("p", state(ended(1, "Error")))}, want: broken(reasons.ServerCrashing), says: []string{"has ended once", "exit code 1"},
		},
		"a container that runs again and isn't ready": {
			pods: []corev1.Pod{pod("p", state(runs(9)), before(ended(1, "Error"), 1))}, want: broken(reasons.ServerCrashing),
		},
		"too little memory": {
			pods: []corev1.Pod{pod("p", state(ended(137, "OOMKilled")))}, want: broken(reasons.ServerCrashing),
			says: []string{"OOMKilled", "more memory than its limit"},
		},
		"a server that ends well": {
			pods: []corev1.Pod{pod("p", state(ended(0, "Completed")))}, want: broken(reasons.ServerCrashing), says: []string{"must go on running"},
		},
		"a command that isn't there": {
			pods: []corev1.Pod{pod("p", state(waits("CrashLoopBackOff", "")), func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: `exec: "serve": not found`}
			})},
			want: broken(reasons.ContainerNotCreated), says: []string{`exec: "serve": not found`, "correct its command"},
		},
		"a missing ConfigMap": {
			pods: []corev1.Pod{pod("p", state(waits("CreateContainerConfigError", `configmap "rules" not found`)))},
			want: broken(reasons.ContainerNotCreated), says: []string{`configmap "rules" not found`, "create what is missing"},
		},
		"a node that hasn't heard of a ConfigMap": {
			pods: []corev1.Pod{pod("p", state(waits("CreateContainerConfigError", "failed to sync configmap cache: timed out waiting for the condition")))},
			want: want{Reason: reasons.ServerStarting, Ask: true}, says: []string{"nothing is wrong so far"},
		},
		"no node that it fits on": {
			pods: []corev1.Pod{pod("p", func(p *corev1.Pod) {
				p.Spec.NodeName = ""
				p.Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available:\n2 Insufficient cpu."}
			})},
			want: broken(reasons.PodUnschedulable), says: []string{"(0/2 nodes are available: 2 Insufficient cpu)", "ask for less"},
		},
		"a probe that doesn't succeed yet": {
			pods: []corev1.Pod{pod("p", state(runs(3)))}, now: 37, want: startingStill, says: []string{"runs since 2026-11-01T12:00:03Z", "readiness probe doesn't succeed yet"},
		},
		"a probe that never succeeds": {
			pods: []corev1.Pod{pod("p", state(runs(3)))}, now: 38, want: broken(reasons.ServerNotReady), says: []string{"readiness probe doesn't succeed:", "correct the probe"},
		},
		"a startup probe that never succeeds": {
			pods: []corev1.Pod{pod("p", state(runs(3)), func(p *corev1.Pod) {
				p.Spec.Containers[0].StartupProbe = &corev1.Probe{}
				p.Status.ContainerStatuses[0].Started = new(false)
			})},
			now: 40, want: broken(reasons.ServerNotReady), says: []string{"its startup probe doesn't succeed"},
		},
		"a game whose sidecar waits for its word": {
			pods: []corev1.Pod{pod("p", state(runs(3)), func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].Ready = true
				p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "dormouse-sidecar", State: runs(3)})
			})}, events: []corev1.Event{},
			now: 3600, want: startingStill, says: []string{"nothing is wrong so far"},
		},
		"a readiness gate": {
			pods: []corev1.Pod{pod("p", state(runs(3)), func(p *corev1.Pod) {
				p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/attached"}}
				p.Status.ContainerStatuses[0].Ready = true
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
			})},
			want: broken(reasons.ServerNotReady), says: []string{"readiness gate example.com/attached"},
		},
		"a pod that is being made": {
			pods: []corev1.Pod{pod("p")}, want: want{Reason: reasons.ServerStarting, Ask: true}, says: []string{"since 2026-11-01T12:00:00Z; nothing is wrong so far"},
		},
		"a pod that is being made, without a warning": {
			pods: []corev1.Pod{pod("p")}, events: []corev1.Event{}, want: startingStill,
		},
		"a volume that can't be mounted": {
			pods: []corev1.Pod{pod("p")}, events: []corev1.Event{warning("pod", "FailedMount", `secret "world" not found`, 5)},
			want: broken(reasons.VolumeNotMounted), says: []string{`secret "world" not found`},
		},
		"a volume that could not be mounted long ago": {
			pods: []corev1.Pod{pod("p")}, events: []corev1.Event{warning("pod", "FailedMount", "", 5)}, now: 200, want: startingStill,
		},
		"a network that a node can't make": {
			pods: []corev1.Pod{pod("p")}, events: []corev1.Event{warning("pod", "FailedCreatePodSandBox", "no addresses left", 5)},
			want: broken(reasons.SandboxNotCreated), says: []string{"The node node-1", "no addresses left"},
		},
		"an evicted pod and nothing else": {
			pods: []corev1.Pod{pod("p", func(p *corev1.Pod) {
				p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "The node was low on memory."
			})},
			want: broken(reasons.ServerCrashing), says: []string{"(Evicted The node was low on memory)"},
		},
		"an evicted pod beside a new one": {
			pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), pod("b", state(runs(3)))}, want: startingStill, says: []string{"pod b"},
		},
		"an old revision that is broken": {
			pods: []corev1.Pod{pod("old", state(waits("ErrImagePull", ""))), pod("new", state(runs(3)), created(2, "new"))}, want: startingStill, says: []string{"pod new"},
		},
		"one of three that crashes": {
			pods: []corev1.Pod{pod("a", state(runs(3))), pod("b", state(ended(1, "Error"))), pod("c", state(runs(3)))}, want: broken(reasons.ServerCrashing), says: []string{"pod b"},
		},
		"a quota that is used up": {
			conditions: []metav1.Condition{{Type: "ReplicaFailure", Status: "True", Message: `pods "lobby-1" is forbidden: exceeded quota: q, requested: pods=1`}},
			want:       broken(reasons.QuotaExceeded), says: []string{"Deployment lobby may not make a pod", "exceeded quota: q", "raise the ResourceQuota"},
		},
		"admission that refuses": {
			conditions: []metav1.Condition{{Type: "ReplicaFailure", Status: "True", Message: `pods "lobby-1" is forbidden: violates PodSecurity "restricted:latest"`}},
			want:       broken(reasons.PodRefused), says: []string{"violates PodSecurity", "change the pod template"},
		},
		"a quota of which only an event tells": {
			events: []corev1.Event{warning("target", "FailedCreate", "create Pod lobby-0 failed error: exceeded quota: q", 1)},
			want:   broken(reasons.QuotaExceeded),
		},
		"an event of another wake": {
			events: []corev1.Event{warning("target", "FailedCreate", "exceeded quota: q", -60)}, want: startingStill,
		},
		"a paused Deployment": {
			conditions: []metav1.Condition{{Type: "Progressing", Status: "Unknown", Reason: "DeploymentPaused"}},
			want:       broken(reasons.NoPod), says: []string{"kubectl rollout resume"},
		},
		"no pod yet": {want: want{Reason: reasons.ServerStarting, Ask: true}, says: []string{"has made no pod yet"}},
		"no pod for long": {
			events: []corev1.Event{}, now: 31, want: broken(reasons.NoPod), says: []string{"no pod since 2026-11-01T12:00:00Z"},
		},
		"no pod for long, and a kind that says why": {
			conditions: []metav1.Condition{{Type: "Degraded", Status: "True", Message: "no licence"}},
			events:     []corev1.Event{}, now: 31, want: broken(reasons.NoPod), says: []string{"its condition Degraded is True (no licence)"},
		},
		"a pod that is going": {
			pods: []corev1.Pod{pod("p", state(ended(1, "Error")), func(p *corev1.Pod) { p.DeletionTimestamp = new(at(1)) })}, events: []corev1.Event{}, want: startingStill,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.now == 0 {
				c.now = 10
			}
			f := Explain(at(c.now).Time, Input{
				Target: Target{Kind: "Deployment", Name: "lobby", UID: "uid-of-target", Conditions: c.conditions},
				Pods:   c.pods, Since: t0, Events: c.events,
			})
			if diff := cmp.Diff(c.want, want{Reason: f.Reason, Wrong: f.Wrong, Ask: f.Ask != nil}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", f.Sentence, diff)
			}
			for _, words := range c.says {
				if !strings.Contains(f.Sentence, words) {
					t.Errorf("the sentence is %q, want %q in it", f.Sentence, words)
				}
			}
			if strings.Contains(f.Sentence, "hunter2") {
				t.Errorf("%q quotes what the container wrote", f.Sentence)
			}
			if !strings.HasSuffix(f.Sentence, ".") || strings.Contains(f.Sentence, "\n") || strings.Contains(f.Sentence, "()") {
				t.Errorf("%q is no sentence", f.Sentence)
			}
		})
	}
}

func TestWhatKubernetesSaysIsCutToABound(t *testing.T) {
	t.Parallel()
	f := Explain(t0, Input{Pods: []corev1.Pod{pod("p", state(waits("ErrImagePull", strings.Repeat("é", 5000)+"\xff")))}})
	if len(f.Sentence) > maxQuote+300 || !utf8.ValidString(f.Sentence) || !strings.Contains(f.Sentence, "…") {
		t.Errorf("a sentence of %d bytes: %q", len(f.Sentence), f.Sentence)
	}
}

func TestNobodyIsOnPodsWithoutAContainerThatRuns(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	with := func(states ...corev1.ContainerState) corev1.Pod {
		p := corev1.Pod{}
		for _, s := range states {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "game", State: s})
		}
		return p
	}
	// initial has a container that runs before the others.
	initial := func(policy *corev1.ContainerRestartPolicy) corev1.Pod {
		p := with(waiting)
		p.Spec.InitContainers = []corev1.Container{{Name: "first", RestartPolicy: policy}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "first", State: running}}
		return p
	}
	behind := with(waiting, running)
	behind.Status.ContainerStatuses[1].Name = "dormouse-sidecar"
	deleted := with(running)
	deleted.DeletionTimestamp = &metav1.Time{}
	for name, c := range map[string]struct {
		pods []corev1.Pod
		want bool
	}{
		"no pod":                    {nil, true},
		"a crashed one":             {[]corev1.Pod{with(waiting)}, true},
		"only its sidecar":          {[]corev1.Pod{initial(new(corev1.ContainerRestartPolicyAlways))}, true},
		"only its sidecar, behind":  {[]corev1.Pod{behind}, true},
		"one that is made ready":    {[]corev1.Pod{initial(nil)}, false},
		"one of two containers":     {[]corev1.Pod{with(waiting, running)}, false},
		"one of two pods":           {[]corev1.Pod{with(waiting), with(running)}, false},
		"one that has ended":        {[]corev1.Pod{with(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})}, true},
		"one that is being deleted": {[]corev1.Pod{deleted}, false},
	} {
		if got := NobodyOn(c.pods); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What may only take its time isn't given up.
func TestOnlyWhatIsHopelessHasNobody(t *testing.T) {
	waiting := func(reason string) []corev1.Pod {
		p := pod("lobby-1")
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "game", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
		return []corev1.Pod{p}
	}
	for name, c := range map[string]struct {
		in   Input
		want bool
	}{
		"an image that isn't there":       {Input{Pods: waiting("ImagePullBackOff"), All: true}, true},
		"one of more pods than were read": {Input{Pods: waiting("ImagePullBackOff")}, false},
		"a pod that is being made":        {Input{Pods: waiting("ContainerCreating"), All: true}, false},
		"no pod yet":                      {Input{All: true, Since: t0}, false},
		"no pod, and nobody says why":     {Input{All: true, Since: t0.Add(-time.Hour)}, false},
	} {
		if got := Explain(t0.Add(10*time.Second), c.in).Nobody; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
