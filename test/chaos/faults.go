package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/internal/dev/devcluster"
	"dormouse.dev/dormouse/test/chaos/schedule"
	"dormouse.dev/dormouse/test/env"
)

const (
	// undoTime bounds the undoing of a fault, when the run is cut short too.
	undoTime = time.Minute
	// drainKept is for how long after its deletion a resolver carries everybody:
	// a little less than config/dev's --drain-timeout.
	drainKept = 58 * time.Second
	// settle is how long a link or a process takes to go on where it was.
	settle = 2 * time.Second
)

// event is a fault as it happened.
type event struct {
	schedule.Fault
	number int
	target string
	// began and ended are when it was done and undone; whole is when nothing
	// was missing any more.
	began, ended, whole time.Time
	outages             []Outage
	err                 error
}

func (e *event) String() string {
	return fmt.Sprintf("fault %d, %s of %s, from %s for %s, whole again after %s", e.number, e.Kind, e.target,
		e.began.Format("15:04:05.000"), e.ended.Sub(e.began).Round(time.Millisecond), e.whole.Sub(e.began).Round(time.Millisecond))
}

// overlaps reports whether it was under way, or recovered from, at some time of
// an interval.
func (e *event) overlaps(from, to time.Time) bool {
	return !to.Before(e.began) && (e.whole.IsZero() || !from.After(e.whole))
}

// inject breaks something, waits, undoes it and waits until all is whole again.
// The undoing happens whatever else does.
func (r *run) inject(ctx context.Context, e *event) (err error) {
	defer func() {
		e.err = err
		if e.ended.IsZero() {
			e.ended = time.Now()
		}
		e.whole = time.Now()
	}()
	if err := r.do(ctx, e); err != nil {
		return fmt.Errorf("%s: %w", e.Kind, err)
	}
	if e.Kind == schedule.LeaderKilled || e.Kind == schedule.LeaderPaused {
		// The lease still looks fresh for a while.
		if err := r.waitLed(ctx, e.began.Add(e.Length)); err != nil {
			return fmt.Errorf("recover from %s: %w", e.Kind, err)
		}
	}
	if err := r.waitWhole(ctx); err != nil {
		return fmt.Errorf("recover from %s: %w", e.Kind, err)
	}
	return nil
}

func (r *run) do(ctx context.Context, e *event) error {
	cluster := r.env.Cluster
	switch e.Kind {
	case schedule.LeaderKilled, schedule.FollowerKilled:
		pod, err := r.operator(ctx, e.Kind == schedule.LeaderKilled)
		if err != nil {
			return err
		}
		return r.kill(ctx, e, pod)
	case schedule.LeaderPaused:
		pod, err := r.operator(ctx, true)
		if err != nil {
			return err
		}
		return r.pause(ctx, e, pod)
	case schedule.ResolverKilled:
		pod, err := r.spare(ctx)
		if err != nil {
			return err
		}
		return r.kill(ctx, e, pod)
	case schedule.ResolverDeleted:
		return r.deleteResolver(ctx, e)
	case schedule.ResolverPaused:
		pods, err := r.pods(ctx, env.Resolver)
		if err != nil || len(pods) == 0 {
			return errors.Join(err, errors.New("no resolver is ready"))
		}
		return r.pause(ctx, e, pods[min(e.Node, len(pods))-1])
	case schedule.KubeletKilled:
		return r.component(ctx, e, devcluster.NodeComponent(devcluster.Kubelet, e.Node), true)
	case schedule.KubeletPaused:
		return r.component(ctx, e, devcluster.NodeComponent(devcluster.Kubelet, e.Node), false)
	case schedule.APIKilled:
		return r.component(ctx, e, devcluster.APIServer, true)
	case schedule.APIPaused:
		return r.component(ctx, e, devcluster.APIServer, false)
	case schedule.EtcdKilled:
		return r.component(ctx, e, devcluster.Etcd, true)
	case schedule.NodeCut:
		e.target = cluster.NodeName(2)
		err := r.during(ctx, e, func(ctx context.Context) error { return cluster.CutNode(ctx, 2) },
			func(ctx context.Context) error { return cluster.RestoreNode(ctx, 2) })
		e.outages = []Outage{{Fault: e.number, Node: 2, From: e.began, To: e.ended.Add(settle)}}
		return err
	}
	return errors.New("no such kind of fault")
}

// during breaks something for the fault's length.
func (r *run) during(ctx context.Context, e *event, brk, undo func(context.Context) error) error {
	e.began = time.Now()
	err := brk(ctx)
	if err == nil {
		r.say(e, "")
		wait(ctx, e.Length)
	}
	undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	err = errors.Join(err, undo(undoing))
	e.ended = time.Now()
	return err
}

// component kills or pauses a process of the cluster itself.
func (r *run) component(ctx context.Context, e *event, name string, kill bool) error {
	e.target = name
	cluster := r.env.Cluster
	if kill {
		return r.during(ctx, e, func(ctx context.Context) error { return cluster.Kill(ctx, name) },
			func(ctx context.Context) error { return cluster.Start(ctx, name) })
	}
	return r.during(ctx, e, func(context.Context) error { return cluster.Pause(name) },
		func(context.Context) error { return cluster.Resume(name) })
}

// kill ends a pod's container the hard way; kubelet starts another.
func (r *run) kill(ctx context.Context, e *event, pod corev1.Pod) error {
	container, err := r.env.Container(pod)
	if err != nil {
		return err
	}
	e.target, e.began = pod.Name, time.Now()
	r.say(e, "")
	if err := container.Kill(ctx); err != nil {
		return err
	}
	err = r.waitRestarted(ctx, pod)
	e.ended = time.Now()
	if pod.Labels["app.kubernetes.io/name"] == env.Resolver {
		e.outages = outagesOf(e, pod, e.began, e.ended, false)
	}
	return err
}

// pause freezes a pod's container. What was sent to a resolver over TCP waits
// in the kernel; over UDP, too, until a socket's buffer is full, or until it is
// taken out of the Service because it isn't ready.
func (r *run) pause(ctx context.Context, e *event, pod corev1.Pod) error {
	container, err := r.env.Container(pod)
	if err != nil {
		return err
	}
	e.target = pod.Name
	err = r.during(ctx, e, func(context.Context) error { return container.Pause() },
		func(context.Context) error { return container.Resume() })
	if pod.Labels["app.kubernetes.io/name"] == env.Resolver {
		e.outages = outagesOf(e, pod, e.began, e.ended.Add(settle), true)
	}
	return err
}

// deleteResolver ends a resolver as a rolling restart does. Its clients lose
// nothing, unless they stay for longer than it is allowed to carry them.
func (r *run) deleteResolver(ctx context.Context, e *event) error {
	pod, err := r.spare(ctx)
	if err != nil {
		return err
	}
	e.target, e.began = pod.Name, time.Now()
	r.say(e, "")
	e.outages = outagesOf(e, pod, e.began.Add(drainKept), e.began.Add(2*drainKept), false)
	err = r.replace(ctx, pod)
	e.ended = time.Now()
	return err
}

func outagesOf(e *event, pod corev1.Pod, from, to time.Time, udpOnly bool) []Outage {
	var outages []Outage
	for _, ip := range pod.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil {
			outages = append(outages, Outage{Fault: e.number, Addr: addr, UDPOnly: udpOnly, From: from, To: to})
		}
	}
	return outages
}

// operator gives the leader or another operator. One that was killed often is
// replaced first: kubelet waits ever longer before it starts it again.
func (r *run) operator(ctx context.Context, leads bool) (corev1.Pod, error) {
	for range 2 {
		leader, err := r.env.Leader(ctx)
		if err != nil {
			return corev1.Pod{}, err
		}
		pods, err := r.pods(ctx, env.Operator)
		if err != nil {
			return corev1.Pod{}, err
		}
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return (p.Name == leader.Name) == leads })
		if i < 0 {
			return corev1.Pod{}, fmt.Errorf("no such operator is ready; %s leads", leader.Name)
		}
		if leads || restarts(pods[i]) < patience {
			return pods[i], nil
		}
		if err := r.replace(ctx, pods[i]); err != nil {
			return corev1.Pod{}, err
		}
	}
	return corev1.Pod{}, errors.New("find an operator that was not killed often")
}

// spare gives a resolver other than the one that lives through the whole run,
// for its memory to say something.
func (r *run) spare(ctx context.Context) (corev1.Pod, error) {
	pods, err := r.pods(ctx, env.Resolver)
	if err != nil {
		return corev1.Pod{}, err
	}
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name != r.elder })
	if i < 0 {
		return corev1.Pod{}, errors.New("no second resolver is ready")
	}
	return pods[i], nil
}

// wait returns after a time, or when the context ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
