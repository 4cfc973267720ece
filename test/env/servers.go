package env

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Ports of the test game as a Server.
const (
	GameTCP  = 7000
	GameUDP  = 7001
	gameHTTP = 8080
)

// ServerSpec is the test game as a Server: it tells its sidecar how many play
// over local HTTP. More arguments change the game, and a later one wins.
func (e *Env) ServerSpec(args ...string) v1alpha1.ServerSpec {
	return v1alpha1.ServerSpec{
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "game", Image: e.TestServer, ImagePullPolicy: corev1.PullIfNotPresent,
				Args: append([]string{
					fmt.Sprintf("--tcp=%d", GameTCP), fmt.Sprintf("--udp=%d", GameUDP), fmt.Sprintf("--http=:%d", gameHTTP),
					"--sdk=http://localhost:9358",
				}, args...),
				Env: []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
				}}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			TerminationGracePeriodSeconds: ptr.To[int64](5),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: ptr.To[int64](65532),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		}},
		Ports: []v1alpha1.ServerPort{
			{Name: "tcp", ContainerPort: GameTCP, Protocol: v1alpha1.ServerProtocolTCP},
			{Name: "udp", ContainerPort: GameUDP, Protocol: v1alpha1.ServerProtocolUDP},
		},
		Players: &v1alpha1.PlayersSpec{Capacity: 32},
	}
}

// CreateServer makes a Server.
func (e *Env) CreateServer(ctx context.Context, namespace, name string, spec v1alpha1.ServerSpec) (*v1alpha1.Server, error) {
	s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
	if err := e.Client.Create(ctx, s); err != nil {
		return nil, fmt.Errorf("create Server %s/%s: %w", namespace, name, err)
	}
	return s, nil
}

// CreateFleet makes a Fleet.
func (e *Env) CreateFleet(ctx context.Context, namespace, name string, replicas int32, spec v1alpha1.ServerSpec) (*v1alpha1.Fleet, error) {
	f := &v1alpha1.Fleet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.FleetSpec{Replicas: &replicas, Template: v1alpha1.ServerTemplate{Spec: spec}},
	}
	if err := e.Client.Create(ctx, f); err != nil {
		return nil, fmt.Errorf("create Fleet %s/%s: %w", namespace, name, err)
	}
	return f, nil
}

// CreateGameType makes a GameType of the test game.
func (e *Env) CreateGameType(ctx context.Context, namespace, name string, replicas int32, change ...func(*v1alpha1.GameTypeSpec)) error {
	gt := &v1alpha1.GameType{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.GameTypeSpec{Replicas: &replicas, Template: v1alpha1.ServerTemplate{Spec: e.ServerSpec()}},
	}
	for _, f := range change {
		f(&gt.Spec)
	}
	if err := e.Client.Create(ctx, gt); err != nil {
		return fmt.Errorf("create GameType %s/%s: %w", namespace, name, err)
	}
	return nil
}

// WaitServer waits until a Server is as wanted.
func (e *Env) WaitServer(ctx context.Context, key types.NamespacedName, what string, done func(*v1alpha1.Server) bool) (*v1alpha1.Server, error) {
	return Wait(ctx, e, &v1alpha1.ServerList{}, key, what, done)
}

// WaitState waits until a Server is in a state.
func (e *Env) WaitState(ctx context.Context, key types.NamespacedName, state v1alpha1.ServerState) (*v1alpha1.Server, error) {
	return e.WaitServer(ctx, key, string(state), func(s *v1alpha1.Server) bool { return s.Status.State == state })
}

// WaitFleet waits until a Fleet is as wanted.
func (e *Env) WaitFleet(ctx context.Context, key types.NamespacedName, what string, done func(*v1alpha1.Fleet) bool) (*v1alpha1.Fleet, error) {
	return Wait(ctx, e, &v1alpha1.FleetList{}, key, what, done)
}

// Servers are a Fleet's, by name.
func (e *Env) Servers(ctx context.Context, namespace, fleet string) (map[string]*v1alpha1.Server, error) {
	var list v1alpha1.ServerList
	if err := e.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{wellknown.FleetLabel: fleet}); err != nil {
		return nil, fmt.Errorf("list the Servers of Fleet %s/%s: %w", namespace, fleet, err)
	}
	servers := map[string]*v1alpha1.Server{}
	for i := range list.Items {
		servers[list.Items[i].Name] = &list.Items[i]
	}
	return servers, nil
}

// SetPlayers makes a test game say that so many play, whoever is there.
func (e *Env) SetPlayers(ctx context.Context, s *v1alpha1.Server, n int) error {
	return e.AskGame(ctx, s, http.MethodPut, "/players", map[string]any{"players": map[string]int{"online": n}}, nil)
}

// AskSidecar lets a test game call its sidecar, and reads the answer into answer
// unless that is nil.
func (e *Env) AskSidecar(ctx context.Context, s *v1alpha1.Server, method, path string, body, answer any) error {
	return e.AskGame(ctx, s, method, "/sdk"+path, body, answer)
}

// AskGame asks a test game over its own HTTP.
func (e *Env) AskGame(ctx context.Context, s *v1alpha1.Server, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode a question: %w", err)
		}
	}
	url := "http://" + net.JoinHostPort(s.Status.PodIP, strconv.Itoa(gameHTTP)) + path
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("make a question: %w", err)
	}
	// A connection that is kept may lead to a game that has crashed since.
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask the game of Server %s: %w", s.Name, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("read the answer of Server %s: %w", s.Name, err)
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s of Server %s: %s: %s", method, path, s.Name, response.Status, text)
	}
	if answer != nil {
		if err := json.Unmarshal(text, answer); err != nil {
			return fmt.Errorf("read the answer of Server %s: %w", s.Name, err)
		}
	}
	return nil
}

// WaitGone waits until an object isn't there any more.
func (e *Env) WaitGone(ctx context.Context, o client.Object) error {
	key := client.ObjectKeyFromObject(o)
	return WaitUntil(ctx, fmt.Sprintf("%T %s is gone", o, key), func(ctx context.Context) (bool, error) {
		now, ok := o.DeepCopyObject().(client.Object)
		if !ok {
			return false, fmt.Errorf("%T is no object", o)
		}
		err := e.Client.Get(ctx, key, now)
		if err == nil {
			// Another of its name is not it.
			return now.GetUID() != o.GetUID(), nil
		}
		return client.IgnoreNotFound(err) == nil, err
	})
}
