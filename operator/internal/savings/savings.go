// Package savings counts what sleeps save: the requests of the pods that there would have been,
// times how long they weren't there. It keeps all in the ElasticServices' status, which is written
// at the end of a sleep anyway, so that nothing is lost with a process and a service at rest costs
// no call.
package savings

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/times"
)

const mebibyte = 1 << 20

// maxSum bounds a sum, so that programs that read JSON's numbers as float64 get all of its digits.
const maxSum = 1 << 53

// Requests is what the pods of a target request that is put to sleep with so many replicas. There
// may be more pods than these: unless these are all, the rest counts as they do. nil: nobody knows.
func Requests(pods []corev1.Pod, all bool, replicas int32) *v1alpha1.AsleepRequests {
	total, counted := &v1alpha1.AsleepRequests{Replicas: replicas}, int64(0)
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		counted++
		total.CPU.Add(atMost(requested(&p.Spec, corev1.ResourceCPU), maxCPU))
		total.Memory.Add(atMost(requested(&p.Spec, corev1.ResourceMemory), maxMemory))
	}
	if counted == 0 {
		return nil
	}
	if rest := int64(replicas); !all && rest > counted {
		total.CPU.SetMilli(total.CPU.MilliValue() * rest / counted)
		total.Memory.Set(total.Memory.Value() / counted * rest)
	}
	return total
}

// End adds a sleep that ends now to the status, whose phase is still Asleep.
func End(now time.Time, s *v1alpha1.ElasticServiceStatus) {
	seconds := int64(math.Round(asleep(now, s).Seconds()))
	if seconds <= 0 {
		return
	}
	s.AsleepSeconds += seconds
	r := s.AsleepRequests
	if r == nil {
		return
	}
	if s.Saved == nil {
		s.Saved = &v1alpha1.Saved{}
	}
	s.Saved.MilliCPUSeconds = sum(s.Saved.MilliCPUSeconds, float64(r.CPU.MilliValue())*float64(seconds))
	s.Saved.MebibyteSeconds = sum(s.Saved.MebibyteSeconds, float64(r.Memory.Value())/mebibyte*float64(seconds))
}

// Leave ends now what the sleep of a target saves that isn't the service's any more: it runs, or it is
// another's to count. The service may sleep on with a target that nobody put to sleep.
func Leave(now time.Time, s *v1alpha1.ElasticServiceStatus) {
	End(now, s)
	if s.Phase == v1alpha1.PhaseAsleep {
		s.PhaseSince = &metav1.MicroTime{Time: now}
	}
	s.AsleepRequests = nil
}

func sum(a int64, b float64) int64 { return int64(min(float64(a)+math.Round(b), maxSum)) }

// asleep is how long a sleep lasts that isn't over; 0 where there is none.
func asleep(now time.Time, s *v1alpha1.ElasticServiceStatus) time.Duration {
	since := times.Micro(s.PhaseSince)
	if s.Phase != v1alpha1.PhaseAsleep || since.IsZero() {
		return 0
	}
	return max(now.Sub(since), 0)
}

// Total is what a service's sleeps come to.
type Total struct {
	// Asleep is in seconds, CPU in cores times seconds, and Memory in bytes times seconds.
	Asleep, CPU, Memory float64
}

// At is what a service's sleeps come to now, with the one that isn't over.
func At(now time.Time, s *v1alpha1.ElasticServiceStatus) Total {
	lasts := asleep(now, s).Seconds()
	t := Total{Asleep: float64(s.AsleepSeconds) + lasts}
	if s.Saved != nil {
		t.CPU, t.Memory = float64(s.Saved.MilliCPUSeconds)/1000, float64(s.Saved.MebibyteSeconds)*mebibyte
	}
	if r := s.AsleepRequests; r != nil {
		t.CPU += float64(r.CPU.MilliValue()) / 1000 * lasts
		t.Memory += float64(r.Memory.Value()) * lasts
	}
	return t
}

// Max is what is more of each.
func (t Total) Max(other Total) Total {
	return Total{max(t.Asleep, other.Asleep), max(t.CPU, other.CPU), max(t.Memory, other.Memory)}
}

// Add is the sum of each.
func (t Total) Add(other Total) Total {
	return Total{t.Asleep + other.Asleep, t.CPU + other.CPU, t.Memory + other.Memory}
}
