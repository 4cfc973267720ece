package gameautoscaler_test

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reportapi"
)

const (
	autoscalers = 500
	// rest is how long each phase of the benchmark lasts.
	rest = 30 * time.Second
)

// BenchmarkFiveHundredAutoscalers measures what 500 GameAutoscalers at an interval of 10 s cost one
// operator: at rest, and while each target's players change every other second. Each has three
// policies and a target with two Servers. The controller runs as in the operator, with its
// workers and watches; the processor time is that of the whole process, with the caches and the
// test itself.
func BenchmarkFiveHundredAutoscalers(b *testing.B) {
	w := prepared(b)
	w.reconciler.Now = time.Now
	if err := w.reconciler.Setup(w.Manager, make(chan event.TypedGenericEvent[*v1alpha1.GameAutoscaler])); err != nil {
		b.Fatal(err)
	}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	w.Start()
	w.inParallel(func(i int) error { return w.makeTarget(fmt.Sprintf("game-%03d", i)) })
	w.eventuallyActive()

	for b.Loop() {
		w.Writes.Take()
		w.Writes.Reads()
		cpu, began := processorTime(b), time.Now()
		w.until(began.Add(rest))
		report := func(phase string) {
			passed := time.Since(began).Seconds()
			writes := 0
			for _, n := range w.Writes.Take() {
				writes += n
			}
			b.ReportMetric((processorTime(b)-cpu).Seconds()*1000/passed, phase+"-cpu-ms/s")
			b.ReportMetric(float64(writes)/passed, phase+"-writes/s")
			b.ReportMetric(float64(w.Writes.Reads())/passed, phase+"-reads/s")
		}
		report("rest")

		cpu, began = processorTime(b), time.Now()
		for n := int32(0); time.Since(began) < rest; n++ {
			round := time.Now()
			w.inParallel(func(i int) error { return w.players(fmt.Sprintf("game-%03d", i), 3+n%4) })
			w.until(round.Add(2 * time.Second))
		}
		report("busy")
	}
	var after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-min(before.HeapAlloc, after.HeapAlloc))/autoscalers/1024, "KiB/autoscaler")
	b.ReportMetric(0, "ns/op")
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// until waits until a time.
func (w *world) until(at time.Time) {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	<-timer.C
}

// inParallel does something for each autoscaler.
func (w *world) inParallel(do func(i int) error) {
	w.t.Helper()
	var group sync.WaitGroup
	const workers = 16
	for worker := range workers {
		group.Go(func() {
			for i := worker; i < autoscalers; i += workers {
				if err := do(i); err != nil {
					w.t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// makeTarget makes a GameType with two Servers on which somebody plays, and its GameAutoscaler.
func (w *world) makeTarget(name string) error {
	ctx := w.t.Context()
	gt := &v1alpha1.GameType{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec: v1alpha1.GameTypeSpec{
			Replicas: new(int32(2)), Scale: &v1alpha1.GameTypeScale{Replicas: 2, Of: new(int32(2))},
			Template: v1alpha1.ServerTemplate{Spec: serverSpec()},
		},
	}
	gas := &v1alpha1.GameAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec: v1alpha1.GameAutoscalerSpec{
			TargetRef: v1alpha1.AutoscalerTarget{Name: name}, MaxReplicas: 10,
			Sync: v1alpha1.AutoscalerSync{Interval: &metav1.Duration{Duration: 10 * time.Second}},
			Policies: []v1alpha1.AutoscalerPolicy{
				byPlayers(),
				{Name: "slots", Buffer: &v1alpha1.BufferPolicy{PlayerSlots: new(intstr.FromInt(5))}},
				{Name: "evening", Schedule: &v1alpha1.SchedulePolicy{TimeWindow: v1alpha1.TimeWindow{Cron: "0 18 * * *", TimeZone: "Europe/Berlin", Duration: metav1.Duration{Duration: time.Hour}}, Replicas: 2}},
			},
		},
	}
	if err := w.Admin.Create(ctx, gt); err != nil {
		return err
	}
	for i := range 2 {
		s := &v1alpha1.Server{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: fmt.Sprintf("%s-%d", name, i), Labels: map[string]string{wellknown.GameTypeLabel: name}},
			Spec:       serverSpec(),
		}
		if err := w.Admin.Create(ctx, s); err != nil {
			return err
		}
		w.mu.Lock()
		w.reports.recent[s.Name] = reportapi.RecentReport{Name: s.Name, PodUID: "pod-" + s.Name}
		w.mu.Unlock()
	}
	if err := w.players(name, 5); err != nil {
		return err
	}
	return w.Admin.Create(ctx, gas)
}

// players sets how many play on a target's first Server, and on all of its Servers.
func (w *world) players(name string, n int32) error {
	for i, players := range []int32{n, 5} {
		s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: fmt.Sprintf("%s-%d", name, i)}}
		patch := fmt.Sprintf(`{"status":{"state":"Ready","players":{"current":%d,"capacity":10},"game":{"state":"Ready","podUID":"pod-%s"}}}`, players, s.Name)
		if err := w.Admin.Status().Patch(w.t.Context(), s, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			return err
		}
	}
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	patch := fmt.Sprintf(`{"status":{"replicas":2,"readyReplicas":2,"players":%d,"capacity":20}}`, n+5)
	return w.Admin.Status().Patch(w.t.Context(), gt, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

// eventuallyActive waits until each GameAutoscaler has decided.
func (w *world) eventuallyActive() {
	w.t.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range 120 {
		var list v1alpha1.GameAutoscalerList
		if err := w.Admin.List(w.t.Context(), &list, client.InNamespace(w.Namespace)); err != nil {
			w.t.Fatal(err)
		}
		decided := 0
		for i := range list.Items {
			if list.Items[i].Status.DesiredReplicas == 2 {
				decided++
			}
		}
		if decided == autoscalers {
			return
		}
		<-tick.C
	}
	w.t.Fatal("the autoscalers don't decide")
}
