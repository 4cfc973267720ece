package games

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gameproto/minecraft"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// loginTo is what Minecraft sends of a player who typed a host.
func loginTo(host string) []byte {
	handshake := append([]byte{0, 0xfd, 0x05, byte(len(host))}, host...)
	handshake = append(handshake, 0x63, 0xdd, 2)
	return minecraft.AppendFrame(minecraft.AppendFrame(nil, handshake), []byte("\x00\x05Hazel"))
}

// behindFront lets a game that sleeps share the Service mc by its name.
func behindFront(ctx context.Context, t *testing.T, g env.Game) {
	t.Helper()
	es := &v1alpha1.ElasticService{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), es); err != nil {
		t.Fatal(err)
	}
	before := es.DeepCopy()
	es.Spec.Ports = []v1alpha1.PortSpec{{Name: "echo-25565", Protocol: v1alpha1.ProtocolMinecraft, Readiness: v1alpha1.ReadinessConnect}}
	es.Spec.Front = &v1alpha1.Front{Service: "mc", Hosts: []v1alpha1.FrontHost{v1alpha1.FrontHost(g.Name + ".example.com")}}
	if err := suite.Cluster.Client.Patch(ctx, es, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	awaitFront(ctx, t, g)
}

// awaitFront waits until a game is reached by its front.
func awaitFront(ctx context.Context, t *testing.T, g env.Game) {
	t.Helper()
	err := env.WaitUntil(ctx, "the front leads to "+g.Name, func(ctx context.Context) (bool, error) {
		es := &v1alpha1.ElasticService{}
		err := suite.Cluster.Client.Get(ctx, g.Key(), es)
		c := meta.FindStatusCondition(es.Status.Conditions, conditions.FrontReady)
		return err == nil && c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == es.Generation, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Several games behind one address: the name that a player typed picks the one that
// is woken, and every byte gets there.
func TestOneAddressServesManyGamesByName(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	front := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mc"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "minecraft", Port: 25565, Protocol: corev1.ProtocolTCP}}},
	}
	if err := suite.Cluster.Client.Create(ctx, front); err != nil {
		t.Fatal(err)
	}
	games := map[string]env.Game{}
	for _, name := range []string{"survival", "creative"} {
		games[name] = env.Game{Namespace: ns, Name: name, Echo: []int32{25565}, Selectorless: true, Handoff: v1alpha1.HandoffNever}
		suite.Asleep(ctx, t, games[name])
		behindFront(ctx, t, games[name])
	}
	address, err := suite.Cluster.ClusterIP(ctx, client.ObjectKeyFromObject(front), 25565, corev1.IPv4Protocol)
	if err != nil {
		t.Fatal(err)
	}
	// say sends a login through the front and gives what came back until the end.
	say := func(host string) []byte {
		t.Helper()
		c, err := suite.Cluster.DialPlayer(ctx, "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(suite.PlayTimeout))
		if _, err := c.Write(loginTo(host)); err != nil {
			t.Fatal(err)
		}
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		got, err := io.ReadAll(c)
		if err != nil {
			t.Fatalf("a player of %s: %v", host, err)
		}
		return got
	}
	if got := say("nobody.example.com"); !bytes.Contains(got, []byte("no server by this name")) {
		t.Errorf("a player of nobody is told %q", got)
	}
	if got := say("survival.example.com"); !bytes.Equal(got, loginTo("survival.example.com")) {
		t.Errorf("survival got %q", got)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, games["survival"].Key(), v1alpha1.PhaseAwake, v1alpha1.ModeProxy); err != nil {
		t.Error(err)
	}
	es := &v1alpha1.ElasticService{}
	if err := suite.Cluster.Client.Get(ctx, games["creative"].Key(), es); err != nil {
		t.Fatal(err)
	}
	if es.Status.Phase != v1alpha1.PhaseAsleep || es.Status.LastWakeTime != nil {
		t.Errorf("creative is %s and was last woken at %v, though nobody named it", es.Status.Phase, es.Status.LastWakeTime)
	}
	// One that is awake is reached by the same address.
	if got := say("survival.example.com"); !bytes.Equal(got, loginTo("survival.example.com")) {
		t.Errorf("awake survival got %q", got)
	}
}
