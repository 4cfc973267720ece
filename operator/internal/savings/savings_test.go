package savings

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func requests(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}}
}

func pod(cpu, memory string, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: requests(cpu, memory)}}}}
	for _, c := range change {
		c(&p)
	}
	return p
}

func initContainer(cpu, memory string, policy *corev1.ContainerRestartPolicy) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Resources: requests(cpu, memory), RestartPolicy: policy})
	}
}

func TestThePodsRequestsAreAddedUp(t *testing.T) {
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	ending := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: epoch} }
	always := corev1.ContainerRestartPolicyAlways
	for name, c := range map[string]struct {
		pods        []corev1.Pod
		some        bool
		replicas    int32
		cpu, memory string // empty: not known
	}{
		"no pods":                          {replicas: 1},
		"pods that are over":               {pods: []corev1.Pod{pod("1", "1Gi", ended), pod("1", "1Gi", ending)}, replicas: 1},
		"two pods":                         {pods: []corev1.Pod{pod("1", "1Gi"), pod("500m", "512Mi")}, replicas: 2, cpu: "1500m", memory: "1536Mi"},
		"without requests":                 {pods: []corev1.Pod{{}}, replicas: 1, cpu: "0", memory: "0"},
		"one that is over":                 {pods: []corev1.Pod{pod("1", "1Gi"), pod("1", "1Gi", ended)}, replicas: 1, cpu: "1", memory: "1Gi"},
		"some of many":                     {pods: []corev1.Pod{pod("1", "1Gi"), pod("500m", "512Mi")}, some: true, replicas: 10, cpu: "7500m", memory: "7680Mi"},
		"a sidecar":                        {pods: []corev1.Pod{pod("1", "1Gi", initContainer("100m", "1Gi", &always))}, replicas: 1, cpu: "1100m", memory: "2Gi"},
		"an init container that is less":   {pods: []corev1.Pod{pod("1", "1Gi", initContainer("1", "512Mi", nil))}, replicas: 1, cpu: "1", memory: "1Gi"},
		"an init container that is more":   {pods: []corev1.Pod{pod("1", "1Gi", initContainer("3", "512Mi", nil))}, replicas: 1, cpu: "3", memory: "1Gi"},
		"an init container past a sidecar": {pods: []corev1.Pod{pod("1", "1Gi", initContainer("1", "1Gi", &always), initContainer("2", "1Gi", nil))}, replicas: 1, cpu: "3", memory: "2Gi"},
		"the pod's own": {pods: []corev1.Pod{pod("1", "1Gi", func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
			p.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
		})}, replicas: 1, cpu: "2", memory: "1025Mi"},
		"what no node has": {pods: []corev1.Pod{pod("1E", "7E")}, replicas: 1, cpu: "100k", memory: "32Ti"},
		"and ten thousand": {pods: []corev1.Pod{pod("1E", "7E")}, some: true, replicas: 10_000, cpu: "1G", memory: "320000Ti"},
	} {
		got := Requests(c.pods, !c.some, c.replicas)
		if (got != nil) != (c.cpu != "") {
			t.Errorf("%s: %+v, want known: %v", name, got, c.cpu != "")
			continue
		}
		if got != nil && (got.CPU.Cmp(resource.MustParse(c.cpu)) != 0 || got.Memory.Cmp(resource.MustParse(c.memory)) != 0 || got.Replicas != c.replicas) {
			t.Errorf("%s: %s and %s of %d, want %s and %s of %d", name, &got.CPU, &got.Memory, got.Replicas, c.cpu, c.memory, c.replicas)
		}
	}
}

// status is that of a service that has been asleep since the epoch.
func status(cpu, memory string) v1alpha1.ElasticServiceStatus {
	return v1alpha1.ElasticServiceStatus{
		Phase: v1alpha1.PhaseAsleep, PhaseSince: &metav1.MicroTime{Time: epoch},
		AsleepRequests: &v1alpha1.AsleepRequests{CPU: resource.MustParse(cpu), Memory: resource.MustParse(memory)},
	}
}

func TestSleepsAddUp(t *testing.T) {
	s := status("250m", "100M")
	End(epoch.Add(1000*time.Second), &s)
	first := v1alpha1.Saved{MilliCPUSeconds: 250_000, MebibyteSeconds: 95_367}
	if diff := cmp.Diff(&first, s.Saved); diff != "" || s.AsleepSeconds != 1000 {
		t.Errorf("after a sleep of 1000 s: %d s, saved (-want +got):\n%s", s.AsleepSeconds, diff)
	}

	// The next is of another size.
	s.PhaseSince = &metav1.MicroTime{Time: epoch.Add(2000 * time.Second)}
	s.AsleepRequests = &v1alpha1.AsleepRequests{CPU: resource.MustParse("2"), Memory: resource.MustParse("1Gi")}
	now := epoch.Add(2010*time.Second + 400*time.Millisecond)
	if diff := cmp.Diff(Total{1010.4, 250 + 20.8, 95_367*mebibyte + 10.4*1024*mebibyte}, At(now, &s)); diff != "" {
		t.Errorf("in a sleep (-want +got):\n%s", diff)
	}
	End(now, &s)
	second := v1alpha1.Saved{MilliCPUSeconds: 270_000, MebibyteSeconds: 95_367 + 10_240}
	if diff := cmp.Diff(&second, s.Saved); diff != "" || s.AsleepSeconds != 1010 {
		t.Errorf("after both: %d s, saved (-want +got):\n%s", s.AsleepSeconds, diff)
	}

	// Where nobody knows what the pods requested only the time counts.
	s.PhaseSince, s.AsleepRequests = &metav1.MicroTime{Time: epoch}, nil
	End(epoch.Add(time.Minute), &s)
	if diff := cmp.Diff(&second, s.Saved); diff != "" || s.AsleepSeconds != 1070 {
		t.Errorf("after a sleep of an unknown size: %d s, saved (-want +got):\n%s", s.AsleepSeconds, diff)
	}
}

func TestWhatIsNoSleepAddsNothing(t *testing.T) {
	awake, unknown := status("1", "1Gi"), status("1", "1Gi")
	awake.Phase, unknown.PhaseSince = v1alpha1.PhaseAwake, nil
	early := status("1", "1Gi")
	for name, s := range map[string]v1alpha1.ElasticServiceStatus{"awake": awake, "since nobody knows when": unknown, "by another's clock that is ahead": early} {
		now := epoch.Add(time.Hour)
		if name == "by another's clock that is ahead" {
			now = epoch.Add(-time.Hour)
		}
		if End(now, &s); s.AsleepSeconds != 0 || s.Saved != nil || At(now, &s) != (Total{}) {
			t.Errorf("%s: %d s, %+v, %+v", name, s.AsleepSeconds, s.Saved, At(now, &s))
		}
	}
}

func TestSumsStayNumbers(t *testing.T) {
	s := status("1G", "320000Ti")
	s.Saved = &v1alpha1.Saved{MilliCPUSeconds: maxSum - 1, MebibyteSeconds: maxSum - 1}
	End(epoch.Add(8760*time.Hour), &s)
	if s.Saved.MilliCPUSeconds != maxSum || s.Saved.MebibyteSeconds != maxSum {
		t.Errorf("%+v", s.Saved)
	}
}

func TestAmountsAreWhatThePricesMakeOfIt(t *testing.T) {
	saved := &v1alpha1.Saved{MilliCPUSeconds: 100 * 3600 * 1000, MebibyteSeconds: 200 * 3600 * 1024}
	for want, p := range map[string]Prices{
		"":          {Currency: "EUR"},
		"4.00 EUR":  {CPUHour: 0.04, Currency: "EUR"},
		"1.01 USD":  {MemoryGiBHour: 0.00503, Currency: "USD"},
		"24.00 JPY": {CPUHour: 0.04, MemoryGiBHour: 0.1, Currency: "JPY"},
	} {
		if got := p.Amount(saved); got != want {
			t.Errorf("at %+v it is %q, want %q", p, got, want)
		}
	}
}

func TestATargetThatIsLeftSavesNoMore(t *testing.T) {
	s := status("2", "1Gi")
	Leave(epoch.Add(100*time.Second), &s)
	want := Total{Asleep: 100, CPU: 200, Memory: 100 << 30}
	if diff := cmp.Diff(want, At(epoch.Add(100*time.Second), &s)); diff != "" {
		t.Errorf("it has saved (-want +got):\n%s", diff)
	}
	// The service sleeps on.
	want.Asleep = 160
	if diff := cmp.Diff(want, At(epoch.Add(160*time.Second), &s)); diff != "" {
		t.Errorf("a minute later it has saved (-want +got):\n%s", diff)
	}

	awake := v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAwake, PhaseSince: &metav1.MicroTime{Time: epoch}}
	if Leave(epoch.Add(time.Minute), &awake); !awake.PhaseSince.Time.Equal(epoch) || awake.AsleepSeconds != 0 {
		t.Errorf("one that is awake is so since %s, and was asleep for %ds", awake.PhaseSince, awake.AsleepSeconds)
	}
}
