package restapi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/restapi/access"
	"dormouse.dev/dormouse/operator/internal/restapi/hosting"
	"dormouse.dev/dormouse/operator/internal/restapi/page"
)

var alice = person{&access.User{Name: "alice"}}

// game changes the game chess.
func (w *world) game(change func(*v1alpha1.GameTypeSpec)) {
	w.t.Helper()
	gt := &v1alpha1.GameType{}
	if err := w.people.hosting.Client.Get(w.t.Context(), client.ObjectKey{Namespace: "servers", Name: "chess"}, gt); err != nil {
		w.t.Fatal(err)
	}
	change(&gt.Spec)
	if err := w.people.hosting.Client.Update(w.t.Context(), gt); err != nil {
		w.t.Fatal(err)
	}
}

// server is a server as it is now.
func (w *world) server(id int64) *v1alpha1.Server {
	w.t.Helper()
	s := &v1alpha1.Server{}
	if err := w.people.hosting.Client.Get(w.t.Context(), client.ObjectKey{Namespace: "servers", Name: hosting.Name(id)}, s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// A disk of 0 is as large as the game's own, in whole GiB; and who presses twice has the same server.
func TestADiskOfZeroIsTheGamesOwn(t *testing.T) {
	for size, want := range map[string]string{"": "1Gi", "10Gi": "10Gi", "4097Mi": "5Gi", "1Mi": "1Gi"} {
		w := newWorld(t, logr.Discard(), nil)
		if size != "" {
			w.game(func(gt *v1alpha1.GameTypeSpec) {
				gt.Template.Spec.Storage = []v1alpha1.StorageSpec{
					{Name: "world", MountPath: "/data", Size: resource.MustParse(size)}, {Name: "more", MountPath: "/more", Size: resource.MustParse("7Gi")},
				}
			})
		}
		wish := page.Wish{ID: 8, Game: "chess", RAMGB: 2}
		for range 2 {
			if err := w.people.Create(t.Context(), alice, wish); err != nil {
				t.Fatalf("%q: %v", size, err)
			}
		}
		if got := w.server(8).Spec.Storage[0].Size.String(); got != want {
			t.Errorf("%q: the disk has %s, want %s", size, got, want)
		}
		wish.DiskGB = 100
		var refusal *page.Refusal
		if err := w.people.Create(t.Context(), alice, wish); !errors.As(err, &refusal) || refusal.Status != http.StatusConflict {
			t.Errorf("%q: with another disk it ends with %v", size, err)
		}
	}
}

// A server that was started starts, whatever comes of asking where its players find it.
func TestAServerWithoutANumberStarts(t *testing.T) {
	for name, c := range map[string]struct {
		get    error // what reading the front's Service ends with
		logged bool
	}{
		"its front isn't there":         {nil, false},
		"its front can't be read":       {errors.New("the cluster is away"), true},
		"its caller has gone meanwhile": {context.Canceled, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, logr.Discard(), nil)
			w.game(func(gt *v1alpha1.GameTypeSpec) {
				gt.Front = &v1alpha1.Front{Service: "front", Hosts: []v1alpha1.FrontHost{"play.example.com"}}
				gt.Template.Spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: 1}}
			})
			if err := w.people.Create(t.Context(), alice, page.Wish{ID: 8, Game: "chess", RAMGB: 2}); err != nil {
				t.Fatal(err)
			}
			w.people.hosting.Client = interceptor.NewClient(w.people.hosting.Client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, cl client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if _, is := o.(*corev1.Service); is && key.Name == "front" && c.get != nil {
						return c.get
					}
					return cl.Get(ctx, key, o, opts...)
				},
			})
			var log strings.Builder
			ctx := logr.NewContext(t.Context(), funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{}))
			if err := w.people.Start(ctx, alice, 8); err != nil {
				t.Errorf("the page says %v", err)
			}
			if s := w.server(8); s.Spec.Running == nil || !*s.Spec.Running {
				t.Error("it doesn't start")
			}
			if logged := strings.Contains(log.String(), "the cluster is away"); logged != c.logged || !c.logged && log.Len() > 0 {
				t.Errorf("the log has %q", log.String())
			}
		})
	}
}

// Each port is shown once: primary is most often another name of one.
func TestAPortIsShownOnce(t *testing.T) {
	for name, c := range map[string]struct {
		has  map[string]int32
		want []page.Port
	}{
		"none":                    {nil, nil},
		"one":                     {map[string]int32{"primary": 30001, "game": 30001}, []page.Port{{Name: "game", Number: 30001}}},
		"two":                     {map[string]int32{"primary": 30001, "game": 30001, "rcon": 30002}, []page.Port{{Name: "game", Number: 30001}, {Name: "rcon", Number: 30002}}},
		"a port of that name":     {map[string]int32{"primary": 30001}, []page.Port{{Name: "primary", Number: 30001}}},
		"such a one, and another": {map[string]int32{"primary": 30001, "rcon": 30002}, []page.Port{{Name: "primary", Number: 30001}, {Name: "rcon", Number: 30002}}},
	} {
		if diff := cmp.Diff(c.want, shown(&hosting.Server{Ports: c.has}).Ports); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
