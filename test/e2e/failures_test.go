package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// healTimeout covers kubelet's and the controllers' own back-offs, once what was
// wrong is mended.
const healTimeout = 90 * time.Second

// crashes makes a game's server crash so many times before it listens. It may be a variable of the server's environment.
func crashes(times string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		pod := &d.Spec.Template.Spec
		pod.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		game := &pod.Containers[0]
		game.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
		game.Args = append(game.Args, "--crash-first="+times, "--crash-file=/scratch/crashes")
	}
}

// crashesUntilMended makes a game's server crash at each start until mend is called. kubelet reads how often it is to
// crash anew for each start.
func crashesUntilMended(ctx context.Context, t *testing.T, ns string) (change func(*appsv1.Deployment), mend func()) {
	t.Helper()
	crash := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "crashes"}, Data: map[string]string{"times": "1000"}}
	if err := suite.Cluster.Client.Create(ctx, crash); err != nil {
		t.Fatal(err)
	}
	change = func(d *appsv1.Deployment) {
		crashes("$(CRASHES)")(d)
		game := &d.Spec.Template.Spec.Containers[0]
		game.Env = append(game.Env, corev1.EnvVar{Name: "CRASHES", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: crash.Name}, Key: "times",
		}}})
	}
	return change, func() {
		t.Helper()
		crash.Data["times"] = "0"
		if err := suite.Cluster.Client.Update(ctx, crash); err != nil {
			t.Fatal(err)
		}
	}
}

// Scenario 4.
func TestHeldClientsOutliveCrashesAndAreServedByTheNextAttempt(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	change, mend := crashesUntilMended(ctx, t, ns)
	g := env.Game{
		Namespace: ns, Name: "lobby", TCP: []int32{7000}, UDP: []int32{7001}, Probe: true,
		BootDelay: time.Second, Change: change,
	}
	suite.Asleep(ctx, t, g)
	tcp, udp := suite.DialTCP(ctx, t, suite.ClusterIP(ctx, t, g, 7000)), suite.DialUDP(ctx, t, suite.ClusterIP(ctx, t, g, 7001))
	for range 5 {
		if _, err := tcp.Send(); err != nil {
			t.Fatal(err)
		}
		if _, err := udp.Send(); err != nil {
			t.Fatal(err)
		}
	}
	// A node forgets a UDP player who has had no answer after 30 seconds of silence, and games send more often.
	sending, cancel := context.WithCancel(ctx)
	var sends sync.WaitGroup
	stop := func() {
		cancel()
		sends.Wait()
	}
	defer stop()
	sends.Go(func() {
		if err := udp.Play(sending, 5*time.Second); err != nil {
			t.Error(err)
		}
	})
	serverIsDown(ctx, t, g, reasons.ServerCrashing, "Container game of pod lobby-", "exit code")
	mend()
	play, end := context.WithTimeout(ctx, healTimeout)
	defer end()
	if err := tcp.Drain(play); err != nil {
		t.Fatalf("the TCP player: %v", err)
	}
	stop()
	if err := udp.Drain(play); err != nil {
		t.Fatalf("the UDP player: %v", err)
	}
	suite.Intact(t, "the TCP player", tcp)
	suite.Intact(t, "the UDP player", udp)
	suite.OneServer(ctx, t, ns)
	serverIsUp(ctx, t, g)
}

// Scenario 4, where no attempt succeeds.
func TestAHoldThatTimesOutEndsCleanly(t *testing.T) {
	t.Parallel()
	const hold = 12 * time.Second
	ctx, ns := suite.Namespace(t)
	g := env.Game{
		Namespace: ns, Name: "lobby", TCP: []int32{7000}, UDP: []int32{7001}, Probe: true,
		HoldTimeout: hold, Change: crashes("1000"),
	}
	suite.Asleep(ctx, t, g)
	udp := suite.DialUDP(ctx, t, suite.ClusterIP(ctx, t, g, 7001))
	if _, err := udp.Send(); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	tcp := dialRaw(ctx, t, suite.ClusterIP(ctx, t, g, 7000))
	// More than is kept, so that some of it is never read.
	if _, err := tcp.Write(make([]byte, 100<<10)); err != nil {
		t.Fatal(err)
	}
	type end struct {
		after time.Duration
		err   error
	}
	ended := make(chan end, 1)
	go func() {
		err := cleanEnd(tcp)
		ended <- end{time.Since(started), err}
	}()
	serverIsDown(ctx, t, g, reasons.ServerCrashing, "has ended")
	if e := <-ended; e.err != nil || e.after < hold-500*time.Millisecond || e.after > hold+3*time.Second {
		t.Errorf("the client was held for %s, want %s; it ended with %v", e.after, hold, e.err)
	}
	if s := udp.Stats(); s.Received != 0 || s.Refused != 0 || s.Err != nil {
		t.Errorf("the UDP player got %d replies, %d refusals, error %v; want silence", s.Received, s.Refused, s.Err)
	}
}

// A server that never comes up costs nothing any more once nobody waits for it.
func TestATargetThatGoesOnCrashingIsPutToSleepAgain(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{
		Namespace: ns, Name: "lobby", TCP: []int32{7000}, Trigger: true, SleepAfter: 5 * time.Second,
		HoldTimeout: 3 * time.Second, Change: crashes("1000"),
	}
	suite.Asleep(ctx, t, g)
	tcp := dialRaw(ctx, t, suite.ClusterIP(ctx, t, g, 7000))
	if _, err := tcp.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	waitPhase(ctx, t, g, v1alpha1.PhaseWaking)
	endsCleanly(t, tcp)
	// Its trigger can't be read and never says that it is idle, so this alone puts it to sleep. When
	// is a test of the operator's with an API server of its own.
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
		t.Fatal(err)
	}
}

// What keeps a server from coming up is told, and once it is mended the player
// who waited all the time is served.
func TestWhatKeepsAServerDownIsToldAndHealsWhileAPlayerIsHeld(t *testing.T) {
	t.Parallel()
	game := func(d *appsv1.Deployment) *corev1.Container { return &d.Spec.Template.Spec.Containers[0] }
	quota := func(ns, pods string) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pods"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}},
		}
	}
	for name, c := range map[string]struct {
		before func(ctx context.Context, t *testing.T, ns string)
		ill    func(*appsv1.Deployment)
		reason string
		says   []string
		mend   func(ctx context.Context, t *testing.T, g env.Game)
	}{
		"a quota that is used up": {
			before: func(ctx context.Context, t *testing.T, ns string) {
				t.Helper()
				q := quota(ns, "0")
				if err := suite.Cluster.Client.Create(ctx, q); err != nil {
					t.Fatal(err)
				}
				err := env.WaitUntil(ctx, "the quota counts", func(ctx context.Context) (bool, error) {
					err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(q), q)
					return len(q.Status.Hard) > 0, err
				})
				if err != nil {
					t.Fatal(err)
				}
			},
			reason: reasons.QuotaExceeded, says: []string{"Deployment lobby may not make a pod", "exceeded quota: pods", "raise the ResourceQuota"},
			mend: func(ctx context.Context, t *testing.T, g env.Game) {
				t.Helper()
				if err := suite.Cluster.Client.Patch(ctx, quota(g.Namespace, "5"), client.Merge); err != nil {
					t.Fatal(err)
				}
			},
		},
		"an image that isn't there": {
			ill: func(d *appsv1.Deployment) {
				game(d).Image, game(d).ImagePullPolicy = "dormouse-nothing:1", corev1.PullNever
			},
			reason: reasons.ImageUnavailable, says: []string{"Container game of pod lobby-", "dormouse-nothing:1", "correct the image's name"},
			mend: editDeployment(func(d *appsv1.Deployment) { game(d).Image = suite.Cluster.TestServer }),
		},
		"a probe that never succeeds": {
			ill:    func(d *appsv1.Deployment) { game(d).ReadinessProbe.HTTPGet.Path = "/nothing" },
			reason: reasons.ServerNotReady, says: []string{"Container game of pod lobby-", "readiness probe doesn't succeed"},
			mend: editDeployment(func(d *appsv1.Deployment) { game(d).ReadinessProbe.HTTPGet.Path = "/healthz" }),
		},
		"a ConfigMap that is missing": {
			ill: func(d *appsv1.Deployment) {
				game(d).EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "rules"}}}}
			},
			reason: reasons.ContainerNotCreated, says: []string{`configmap "rules" not found`, "create what is missing"},
			mend: func(ctx context.Context, t *testing.T, g env.Game) {
				t.Helper()
				if err := suite.Cluster.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "rules"}}); err != nil {
					t.Fatal(err)
				}
			},
		},
		"a volume that is missing": {
			ill: func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "world", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "world"}}}}
				game(d).VolumeMounts = []corev1.VolumeMount{{Name: "world", MountPath: "/world"}}
			},
			reason: reasons.VolumeNotMounted, says: []string{"waits for a volume", `secret "world" not found`},
			mend: editDeployment(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Volumes, game(d).VolumeMounts = nil, nil }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, ns := suite.Namespace(t)
			if c.before != nil {
				c.before(ctx, t, ns)
			}
			g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{7000}, Probe: true, Change: c.ill}
			suite.Asleep(ctx, t, g)
			p := suite.DialTCP(ctx, t, suite.ClusterIP(ctx, t, g, 7000))
			if _, err := p.Send(); err != nil {
				t.Fatal(err)
			}
			serverIsDown(ctx, t, g, c.reason, c.says...)
			if p.Stats().Received > 0 {
				t.Error("somebody served the player")
			}
			c.mend(ctx, t, g)
			play, cancel := context.WithTimeout(ctx, healTimeout)
			defer cancel()
			if err := p.Drain(play); err != nil {
				t.Fatal(err)
			}
			suite.Intact(t, "the player", p)
			serverIsUp(ctx, t, g)
		})
	}
}

// The operator knows where the time of a wake goes.
func TestAWakeFillsEachStageOnce(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{7000}, Probe: true}
	suite.Asleep(ctx, t, g)
	p := suite.DialTCP(ctx, t, suite.ClusterIP(ctx, t, g, 7000))
	if _, err := p.Exchange(ctx); err != nil {
		t.Fatal(err)
	}
	wakes := func(metric string, labels map[string]string, enough func(sum float64) bool) {
		err := env.WaitUntil(ctx, metric+" is filled", func(ctx context.Context) (bool, error) {
			operators, err := suite.Cluster.Metrics(ctx, "dormouse-operator", metric, labels)
			sum := 0.0
			for _, n := range operators {
				sum += n
			}
			return enough(sum), err
		})
		if err != nil {
			t.Errorf("%s %v: %v", metric, labels, err)
		}
	}
	wakes("dormouse_wakes_total", map[string]string{"namespace": ns, "service": "lobby"}, func(sum float64) bool { return sum == 1 })
	// The stages are told of all services together; other tests' have theirs meanwhile.
	for _, stage := range []string{"total", "scheduled", "started", "up", "handed_over"} {
		wakes("dormouse_wake_seconds", map[string]string{"stage": stage}, func(sum float64) bool { return sum >= 1 })
	}
}

// editDeployment changes a game's Deployment.
func editDeployment(change func(*appsv1.Deployment)) func(context.Context, *testing.T, env.Game) {
	return func(ctx context.Context, t *testing.T, g env.Game) {
		t.Helper()
		d := &appsv1.Deployment{}
		if err := suite.Cluster.Client.Get(ctx, g.Key(), d); err != nil {
			t.Fatal(err)
		}
		original := d.DeepCopy()
		change(d)
		if err := suite.Cluster.Client.Patch(ctx, d, client.MergeFrom(original)); err != nil {
			t.Fatal(err)
		}
	}
}

func dialRaw(ctx context.Context, t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := suite.Cluster.DialPlayer(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// endsCleanly fails unless a connection ends with an end: no byte, no reset.
func endsCleanly(t *testing.T, c net.Conn) {
	t.Helper()
	if err := cleanEnd(c); err != nil {
		t.Fatal(err)
	}
}

// cleanEnd waits for a connection's end, and is an error where that isn't a clean one.
func cleanEnd(c net.Conn) error {
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %d bytes, %v; want the connection's end", n, err) //nolint:errorlint // there may be none
	}
	return nil
}
