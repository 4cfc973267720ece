package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

// oneWake bounds a single run.
const oneWake = time.Minute

// figures are what wake.json has.
type figures struct {
	Runs                 int       `json:"runs"`
	PacketToWakeCall     quantiles `json:"packet_to_wake_call_ms"`
	WakeCallToPod        quantiles `json:"wake_call_to_pod_ms"`
	PacketToPod          quantiles `json:"packet_to_pod_ms"`
	PodToListening       quantiles `json:"pod_to_listening_ms"`
	ListeningToFirstByte quantiles `json:"listening_to_first_byte_ms"`
	Total                quantiles `json:"total_ms"`
	FanIn                quantiles `json:"fanin_500_ms"`
}

// stages are the times of one wake. All clocks are this machine's one.
type stages struct {
	packetToCall, callToPod, podToListening, listeningToByte, total time.Duration
}

func benchWake(ctx context.Context, e *env.Env, o options) (_ any, err error) {
	runs, clients := o.runs, o.clients
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	if err := e.Client.Create(ctx, ns); err != nil {
		return nil, fmt.Errorf("create a namespace: %w", err)
	}
	defer func() { err = errors.Join(err, e.Client.Delete(context.WithoutCancel(ctx), ns)) }()
	g := env.Game{Namespace: ns.Name, Name: "lobby", TCP: []int32{7000}}
	if err := e.Create(ctx, g); err != nil {
		return nil, err
	}

	var packetToCall, callToPod, packetToPod, podToListening, listeningToByte, total []time.Duration
	for i := range runs {
		s, err := wakeOnce(ctx, e, g)
		if err != nil {
			return nil, fmt.Errorf("wake %d: %w", i+1, err)
		}
		fmt.Fprintf(os.Stderr, "wake %2d of %d: %7.1f ms in all\n", i+1, runs, milliseconds(s.total))
		packetToCall = append(packetToCall, s.packetToCall)
		callToPod = append(callToPod, s.callToPod)
		packetToPod = append(packetToPod, s.packetToCall+s.callToPod)
		podToListening = append(podToListening, s.podToListening)
		listeningToByte = append(listeningToByte, s.listeningToByte)
		total = append(total, s.total)
	}
	fanIn, err := fanInOnce(ctx, e, g, clients)
	if err != nil {
		return nil, fmt.Errorf("%d clients at once: %w", clients, err)
	}
	f := figures{
		Runs:                 runs,
		PacketToWakeCall:     quantilesOf(packetToCall),
		WakeCallToPod:        quantilesOf(callToPod),
		PacketToPod:          quantilesOf(packetToPod),
		PodToListening:       quantilesOf(podToListening),
		ListeningToFirstByte: quantilesOf(listeningToByte),
		Total:                quantilesOf(total),
		FanIn:                quantilesOf(fanIn),
	}
	fmt.Printf("%d wakes of a server that listens at once:\n", runs)
	fmt.Println("  packet -> wake call          ", f.PacketToWakeCall)
	fmt.Println("  wake call -> Pod object      ", f.WakeCallToPod)
	fmt.Println("  packet -> Pod object         ", f.PacketToPod)
	fmt.Println("  Pod object -> listening      ", f.PodToListening)
	fmt.Println("  listening -> first byte      ", f.ListeningToFirstByte)
	fmt.Println("  packet -> first reply (total)", f.Total)
	fmt.Printf("%d clients at once:\n", clients)
	fmt.Println("  listening -> first byte      ", f.FanIn)
	return f, nil
}

// wakeOnce puts the game to sleep by hand, and wakes it with one player.
func wakeOnce(ctx context.Context, e *env.Env, g env.Game) (stages, error) {
	ctx, cancel := context.WithTimeout(ctx, oneWake)
	defer cancel()
	address, err := sleepNow(ctx, e, g)
	if err != nil {
		return stages{}, err
	}
	pods, err := e.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(g.Namespace))
	if err != nil {
		return stages{}, fmt.Errorf("watch pods: %w", err)
	}
	defer pods.Stop()
	created := make(chan time.Time, 1)
	go func() {
		for event := range pods.ResultChan() {
			if event.Type == watch.Added {
				created <- time.Now()
				return
			}
		}
	}()
	p, err := player.DialTCP(ctx, address, player.Options{Dial: e.DialPlayer})
	if err != nil {
		return stages{}, err
	}
	defer func() { _ = p.Close() }()
	reply, err := p.Exchange(ctx)
	if err != nil {
		return stages{}, err
	}
	stats := p.Stats()
	if err := stats.Intact(); err != nil {
		return stages{}, err
	}
	es := &v1alpha1.ElasticService{}
	if err := e.Client.Get(ctx, g.Key(), es); err != nil {
		return stages{}, fmt.Errorf("read ElasticService %s: %w", g.Key(), err)
	}
	var pod time.Time
	select {
	case pod = <-created:
	case <-ctx.Done():
		return stages{}, fmt.Errorf("wait for the pod: %w", ctx.Err())
	}
	first, err := firstWake(es)
	if err != nil {
		return stages{}, err
	}
	return stages{
		packetToCall:    first.Sub(stats.Dialed),
		callToPod:       pod.Sub(first),
		podToListening:  time.Unix(0, reply.Listening).Sub(pod),
		listeningToByte: stats.ListeningToFirstByte(),
		total:           stats.FirstReply.Sub(stats.Dialed),
	}, nil
}

// firstWake is when the operator took the wake call. It is stamped at most once
// a second, and a wake that takes longer is stamped again: such a run has no
// figure.
func firstWake(es *v1alpha1.ElasticService) (time.Time, error) {
	if es.Status.LastWakeTime == nil {
		return time.Time{}, errors.New("the wake was not stamped")
	}
	return es.Status.LastWakeTime.Time, nil
}

// fanInOnce wakes the game with many players at once, and gives each one's time
// from the server's listening to its first byte there.
func fanInOnce(ctx context.Context, e *env.Env, g env.Game, clients int) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, oneWake)
	defer cancel()
	address, err := sleepNow(ctx, e, g)
	if err != nil {
		return nil, err
	}
	times := make([]time.Duration, clients)
	errs := make([]error, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			p, err := player.DialTCP(ctx, address, player.Options{Dial: e.DialPlayer})
			if err != nil {
				errs[i] = err
				return
			}
			defer func() { _ = p.Close() }()
			_, err = p.Exchange(ctx)
			stats := p.Stats()
			errs[i], times[i] = errors.Join(err, stats.Intact()), stats.ListeningToFirstByte()
		})
	}
	group.Wait()
	return times, errors.Join(errs...)
}

// sleepNow scales the game to zero, waits until nothing of it is left and the
// resolver stands in for it everywhere, and gives its address.
func sleepNow(ctx context.Context, e *env.Env, g env.Game) (string, error) {
	d := &appsv1.Deployment{}
	if err := e.Client.Get(ctx, g.Key(), d); err != nil {
		return "", fmt.Errorf("read Deployment %s: %w", g.Key(), err)
	}
	zero := d.DeepCopy()
	zero.Spec.Replicas = new(int32)
	if err := e.Client.Patch(ctx, zero, client.MergeFrom(d)); err != nil {
		return "", fmt.Errorf("scale Deployment %s to zero: %w", g.Key(), err)
	}
	es, err := e.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	if err != nil {
		return "", err
	}
	if err := e.WaitRouted(ctx, es, 1); err != nil {
		return "", err
	}
	err = env.WaitUntil(ctx, "the game's pods are gone", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := e.Client.List(ctx, &pods, client.InNamespace(g.Namespace))
		return err == nil && len(pods.Items) == 0, err
	})
	if err != nil {
		return "", err
	}
	return e.ClusterIP(ctx, g.Key(), g.TCP[0], corev1.IPv4Protocol)
}
