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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

const (
	// oneWake bounds a single run.
	oneWake = time.Minute
	// fallAsleep bounds what comes before it.
	fallAsleep = 2 * time.Minute
	// queryPort is where a game answers probes.
	queryPort = 7002
)

// figures are what wake.json has: of a Deployment, of which a wake makes a
// ReplicaSet's Pod, and of a GameType, of which it makes a Fleet's Server's.
type figures struct {
	Deployment wakeFigures `json:"deployment"`
	GameType   wakeFigures `json:"gametype"`
	// Silent is of a GameType whose game says nothing of itself, and answers no probe.
	Silent wakeFigures `json:"gametype_silent"`
	// Floor is of Pods with the GameType's game that are made by hand, and dialled as soon as
	// they have an address.
	Floor wakeFigures `json:"floor"`
	// Pair is of such Pods with a second container after the game, as a GameType's Pod has its sidecar: kubelet
	// tells the Pod's address once it has started both.
	Pair wakeFigures `json:"floor_of_two_containers"`
	// Slow is of a GameType whose game boots for 3 to 8 seconds, SlowSDK of one that says when
	// it is ready, and SlowProbe of one that answers a probe then.
	Slow      wakeFigures `json:"gametype_slow_boot"`
	SlowSDK   wakeFigures `json:"gametype_slow_boot_sdk"`
	SlowProbe wakeFigures `json:"gametype_slow_boot_probe"`
	FanIn     quantiles   `json:"fanin_500_ms"`
}

type wakeFigures struct {
	Runs                 int       `json:"runs"`
	PacketToWakeCall     quantiles `json:"packet_to_wake_call_ms"`
	WakeCallToPod        quantiles `json:"wake_call_to_pod_ms"`
	PacketToPod          quantiles `json:"packet_to_pod_ms"`
	PodToListening       quantiles `json:"pod_to_listening_ms"`
	ListeningToFirstByte quantiles `json:"listening_to_first_byte_ms"`
	Total                quantiles `json:"total_ms"`
}

// sleeper is a game that sleeps and wakes, and what is scaled for that.
type sleeper struct {
	env.Game
	target client.Object
}

// stages are the times of one wake. All clocks are this machine's one.
type stages struct {
	packetToCall, callToPod, podToListening, listeningToByte, total time.Duration
}

func benchWake(ctx context.Context, e *env.Env, o options) (_ any, err error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	if err := e.Client.Create(ctx, ns); err != nil {
		return nil, fmt.Errorf("create a namespace: %w", err)
	}
	defer func() { err = errors.Join(err, e.Client.Delete(context.WithoutCancel(ctx), ns)) }()
	deployment := sleeper{env.Game{Namespace: ns.Name, Name: "lobby", TCP: []int32{7000}}, &appsv1.Deployment{}}
	if err := e.Create(ctx, deployment.Game); err != nil {
		return nil, err
	}
	var f figures
	if f.Deployment, err = wakeOften(ctx, e, deployment, o.runs); err != nil {
		return nil, fmt.Errorf("a Deployment: %w", err)
	}
	if f.FanIn, err = fanInOnce(ctx, e, deployment, o.clients); err != nil {
		return nil, fmt.Errorf("%d clients at once: %w", o.clients, err)
	}
	if _, err := sleepNow(ctx, e, deployment); err != nil {
		return nil, err
	}
	if f.Floor, err = often(o.runs, func() (stages, error) { return floorOnce(ctx, e, ns.Name, false) }); err != nil {
		return nil, fmt.Errorf("a bare Pod: %w", err)
	}
	if f.Pair, err = often(o.runs, func() (stages, error) { return floorOnce(ctx, e, ns.Name, true) }); err != nil {
		return nil, fmt.Errorf("a bare Pod of two containers: %w", err)
	}
	gameType := sleeper{env.Game{Namespace: ns.Name, Name: "arena", TCP: []int32{env.GameTCP}}, &v1alpha1.GameType{}}
	if err := e.CreateGameType(ctx, ns.Name, gameType.Name, 0); err != nil {
		return nil, err
	}
	if f.GameType, err = wakeOften(ctx, e, gameType, o.runs); err != nil {
		return nil, fmt.Errorf("a GameType: %w", err)
	}
	if _, err := sleepNow(ctx, e, gameType); err != nil {
		return nil, err
	}
	silent := sleeper{env.Game{Namespace: ns.Name, Name: "parlor", TCP: []int32{env.GameTCP}}, &v1alpha1.GameType{}}
	if err := e.CreateGameType(ctx, ns.Name, silent.Name, 0, func(s *v1alpha1.GameTypeSpec) {
		s.Template.Spec.Players = nil
		game := &s.Template.Spec.Template.Spec.Containers[0]
		game.Args = append(game.Args, "--sdk=")
	}); err != nil {
		return nil, err
	}
	if f.Silent, err = wakeOften(ctx, e, silent, o.runs); err != nil {
		return nil, fmt.Errorf("a GameType that says nothing: %w", err)
	}
	if _, err := sleepNow(ctx, e, silent); err != nil {
		return nil, err
	}
	for _, slow := range []struct {
		name    string
		figures *wakeFigures
		change  func(*v1alpha1.ServerSpec)
	}{
		{"raid", &f.Slow, func(*v1alpha1.ServerSpec) {}},
		{"dungeon", &f.SlowSDK, func(s *v1alpha1.ServerSpec) {
			s.Readiness = v1alpha1.ServerReadinessSDK
			s.Template.Spec.Containers[0].Args = append(s.Template.Spec.Containers[0].Args, "--sdk-ready")
		}},
		{"siege", &f.SlowProbe, func(s *v1alpha1.ServerSpec) {
			s.Template.Spec.Containers[0].Args = append(s.Template.Spec.Containers[0].Args, fmt.Sprintf("--a2s=%d", queryPort))
			s.Ports = append(s.Ports, v1alpha1.ServerPort{Name: "query", ContainerPort: queryPort, Protocol: v1alpha1.ServerProtocolUDP})
			s.Players.Probe = &v1alpha1.PlayersProbe{Type: v1alpha1.ProbeSource, Port: "query"}
		}},
	} {
		g := sleeper{env.Game{Namespace: ns.Name, Name: slow.name, TCP: []int32{env.GameTCP}}, &v1alpha1.GameType{}}
		if err := e.CreateGameType(ctx, ns.Name, g.Name, 0, func(s *v1alpha1.GameTypeSpec) {
			game := &s.Template.Spec.Template.Spec.Containers[0]
			game.Args = append(game.Args, "--boot-delay=3s", "--boot-spread=5s")
			slow.change(&s.Template.Spec)
		}); err != nil {
			return nil, err
		}
		if *slow.figures, err = wakeOften(ctx, e, g, o.slow); err != nil {
			return nil, fmt.Errorf("a game that boots slowly: %w", err)
		}
		if _, err := sleepNow(ctx, e, g); err != nil {
			return nil, err
		}
	}
	f.Deployment.print("a Deployment whose server listens at once")
	f.Floor.print("a bare Pod whose server listens at once, dialled every 2 ms")
	f.Pair.print("a bare Pod of the same game and a second container, dialled every 2 ms")
	f.GameType.print("a GameType whose game counts its players, and whose server listens at once")
	f.Silent.print("a GameType whose game says nothing, and whose server listens at once")
	f.Slow.print("a GameType whose server boots for 3 to 8 seconds")
	f.SlowSDK.print("a GameType whose server boots for 3 to 8 seconds, with the SDK")
	f.SlowProbe.print("a GameType whose server boots for 3 to 8 seconds, and answers a probe")
	fmt.Printf("%d clients at once:\n", o.clients)
	fmt.Println("  listening -> first byte      ", f.FanIn)
	return f, nil
}

// wakeOften wakes a game so many times.
func wakeOften(ctx context.Context, e *env.Env, g sleeper, runs int) (wakeFigures, error) {
	return often(runs, func() (stages, error) { return wakeOnce(ctx, e, g) })
}

// often measures so many wakes.
func often(runs int, once func() (stages, error)) (wakeFigures, error) {
	var packetToCall, callToPod, packetToPod, podToListening, listeningToByte, total []time.Duration
	for i := range runs {
		s, err := once()
		if err != nil {
			return wakeFigures{}, fmt.Errorf("wake %d: %w", i+1, err)
		}
		fmt.Fprintf(os.Stderr, "wake %2d of %d: %7.1f ms to the Pod, %7.1f ms in all\n", i+1, runs, milliseconds(s.packetToCall+s.callToPod), milliseconds(s.total))
		packetToCall = append(packetToCall, s.packetToCall)
		callToPod = append(callToPod, s.callToPod)
		packetToPod = append(packetToPod, s.packetToCall+s.callToPod)
		podToListening = append(podToListening, s.podToListening)
		listeningToByte = append(listeningToByte, s.listeningToByte)
		total = append(total, s.total)
	}
	return wakeFigures{
		Runs:                 runs,
		PacketToWakeCall:     quantilesOf(packetToCall),
		WakeCallToPod:        quantilesOf(callToPod),
		PacketToPod:          quantilesOf(packetToPod),
		PodToListening:       quantilesOf(podToListening),
		ListeningToFirstByte: quantilesOf(listeningToByte),
		Total:                quantilesOf(total),
	}, nil
}

func (f wakeFigures) print(what string) {
	fmt.Printf("%d wakes of %s:\n", f.Runs, what)
	if f.PacketToWakeCall != (quantiles{}) {
		fmt.Println("  packet -> wake call          ", f.PacketToWakeCall)
		fmt.Println("  wake call -> Pod object      ", f.WakeCallToPod)
	}
	fmt.Println("  packet -> Pod object         ", f.PacketToPod)
	fmt.Println("  Pod object -> listening      ", f.PodToListening)
	fmt.Println("  listening -> first byte      ", f.ListeningToFirstByte)
	fmt.Println("  packet -> first reply (total)", f.Total)
}

// wakeOnce puts the game to sleep by hand, and wakes it with one player.
func wakeOnce(ctx context.Context, e *env.Env, g sleeper) (stages, error) {
	ctx, cancel := context.WithTimeout(ctx, oneWake)
	defer cancel()
	address, err := sleepNow(ctx, e, g)
	if err != nil {
		return stages{}, err
	}
	began := time.Now()
	created, err := first(ctx, e, g, &corev1.PodList{}, func(event watch.Event) (time.Time, bool) {
		return time.Now(), event.Type == watch.Added
	})
	if err != nil {
		return stages{}, err
	}
	// A wake that takes long is stamped again, a second later.
	called, err := first(ctx, e, g, &v1alpha1.ElasticServiceList{}, func(event watch.Event) (time.Time, bool) {
		es, ok := event.Object.(*v1alpha1.ElasticService)
		if !ok || es.Status.LastWakeTime == nil {
			return time.Time{}, false
		}
		return es.Status.LastWakeTime.Time, es.Status.LastWakeTime.After(began)
	})
	if err != nil {
		return stages{}, err
	}
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
	pod, err := within(ctx, created)
	if err != nil {
		return stages{}, fmt.Errorf("wait for the pod: %w", err)
	}
	call, err := within(ctx, called)
	if err != nil {
		return stages{}, fmt.Errorf("wait for the wake's stamp: %w", err)
	}
	// Until then resolvers ask for it again, and a sleep would not last.
	if _, err := e.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
		return stages{}, err
	}
	return stages{
		packetToCall:    call.Sub(stats.Dialed),
		callToPod:       pod.Sub(call),
		podToListening:  time.Unix(0, reply.Listening).Sub(pod),
		listeningToByte: stats.ListeningToFirstByte(),
		total:           stats.FirstReply.Sub(stats.Dialed),
	}, nil
}

// atRest waits until what was scaled has said that it sleeps: nothing more is written
// then.
func atRest(ctx context.Context, e *env.Env, g sleeper) error {
	return env.WaitUntil(ctx, "nothing more is said of the sleep", func(ctx context.Context) (bool, error) {
		err := e.Client.Get(ctx, g.Key(), g.target)
		switch t := g.target.(type) {
		case *v1alpha1.GameType:
			s := t.Status
			return err == nil && s.ObservedGeneration == t.Generation && s.Replicas+s.DrainingReplicas == 0 && s.Phase == v1alpha1.PhaseAsleep, err
		case *appsv1.Deployment:
			return err == nil && t.Status.ObservedGeneration == t.Generation && t.Status.Replicas == 0, err
		default:
			return false, fmt.Errorf("what says that %T sleeps isn't known", t)
		}
	})
}

// first watches a kind in the game's namespace, and gives the first time that is
// found in what changes from now on.
func first(ctx context.Context, e *env.Env, g sleeper, list client.ObjectList, find func(watch.Event) (time.Time, bool)) (<-chan time.Time, error) {
	if err := e.Client.List(ctx, list, client.InNamespace(g.Namespace)); err != nil {
		return nil, fmt.Errorf("list %T: %w", list, err)
	}
	from := &client.ListOptions{Namespace: g.Namespace, Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
	events, err := e.Client.Watch(ctx, list, from)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", list, err)
	}
	found := make(chan time.Time, 1)
	go func() {
		defer events.Stop()
		for event := range events.ResultChan() {
			if at, ok := find(event); ok {
				found <- at
				return
			}
		}
	}()
	return found, nil
}

func within(ctx context.Context, times <-chan time.Time) (time.Time, error) {
	select {
	case at := <-times:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

// fanInOnce wakes the game with many players at once, and gives each one's time
// from the server's listening to its first byte there.
func fanInOnce(ctx context.Context, e *env.Env, g sleeper, clients int) (quantiles, error) {
	ctx, cancel := context.WithTimeout(ctx, oneWake)
	defer cancel()
	address, err := sleepNow(ctx, e, g)
	if err != nil {
		return quantiles{}, err
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
	return quantilesOf(times), errors.Join(errs...)
}

// sleepNow scales the game to zero, waits until nothing of it is left and the
// resolver stands in for it everywhere, and gives its address.
func sleepNow(ctx context.Context, e *env.Env, g sleeper) (string, error) {
	var before corev1.PodList
	if err := e.Client.List(ctx, &before, client.InNamespace(g.Namespace)); err != nil {
		return "", fmt.Errorf("list pods: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, fallAsleep)
	defer cancel()
	// A wake call of the last run, which was on its way, may raise it once more.
	es := &v1alpha1.ElasticService{}
	asleep := func(ctx context.Context) (bool, error) {
		// A call that fails leaves nothing of the names.
		g.target.SetNamespace(g.Namespace)
		g.target.SetName(g.Name)
		zero := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
		if err := e.Client.SubResource("scale").Patch(ctx, g.target, zero); err != nil {
			return false, fmt.Errorf("scale %T %s to zero: %w", g.target, g.Key(), err)
		}
		err := e.Client.Get(ctx, g.Key(), es)
		return err == nil && es.Status.Phase == v1alpha1.PhaseAsleep && es.Status.Mode == v1alpha1.ModeProxy &&
			env.Condition(es, conditions.EndpointsInSync) == metav1.ConditionTrue, err
	}
	if err := env.WaitUntil(ctx, fmt.Sprintf("ElasticService %s is asleep", g.Key()), asleep); err != nil {
		return "", err
	}
	for i := range before.Items {
		if err := e.WaitUnrouted(ctx, before.Items[i].Status.PodIP); err != nil {
			return "", err
		}
	}
	err := env.WaitUntil(ctx, "the game's pods and Servers are gone", func(ctx context.Context) (bool, error) {
		if ok, err := asleep(ctx); !ok {
			return false, err
		}
		var pods corev1.PodList
		var servers v1alpha1.ServerList
		err := errors.Join(e.Client.List(ctx, &pods, client.InNamespace(g.Namespace)), e.Client.List(ctx, &servers, client.InNamespace(g.Namespace)))
		return err == nil && len(pods.Items)+len(servers.Items) == 0, err
	})
	if err != nil {
		return "", err
	}
	if err := e.WaitRouted(ctx, es, 1); err != nil {
		return "", err
	}
	if err := atRest(ctx, e, g); err != nil {
		return "", err
	}
	return e.ClusterIP(ctx, g.Key(), g.TCP[0], corev1.IPv4Protocol)
}
