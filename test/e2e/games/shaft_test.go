package games

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/env/minetest"
)

// shaft is a world of Debian's Minetest, in which each player digs one block deeper.
type shaft struct {
	*world
	player  *minetest.Player
	address string
	dug     []minetest.Position
	// undug were dug once, in a world that is given up.
	undug []minetest.Position
}

// newShaft makes a GameType of one place that sleeps a second after the last player, whose number the
// game tells the sidecar.
func newShaft(ctx context.Context, t *testing.T, namespace string, files *v1alpha1.FilesSpec, backup *v1alpha1.BackupSpec) *shaft {
	t.Helper()
	game, err := minetest.Image(ctx, suite.Cluster, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	player, err := minetest.NewPlayer(ctx, suite.Cluster, t.TempDir(), "digger", os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	pod := suite.Cluster.ServerSpec().Template
	container := &pod.Spec.Containers[0]
	container.Image, container.Command, container.Args = game.Image, nil, minetest.Args("/world")
	replicas := int32(1)
	w := &world{t: t, game: env.Game{Namespace: namespace, Name: "shaft"}}
	err = suite.Cluster.Client.Create(ctx, &v1alpha1.GameType{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: w.game.Name},
		Spec: v1alpha1.GameTypeSpec{
			Replicas: &replicas,
			Sleep:    &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: time.Second}},
			Files:    files, Backup: backup,
			Template: v1alpha1.ServerTemplate{Spec: v1alpha1.ServerSpec{
				Template: pod,
				Ports:    []v1alpha1.ServerPort{{Name: "game", ContainerPort: minetest.Port, Protocol: "UDP"}},
				Storage:  []v1alpha1.StorageSpec{{Name: "world", MountPath: "/world", Size: resource.MustParse("1Gi")}},
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &shaft{world: w, player: player}
}

// asleep waits until the game sleeps.
func (s *shaft) asleep(ctx context.Context) {
	s.t.Helper()
	if _, err := suite.Cluster.WaitPhase(ctx, s.game.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
		s.t.Fatal(err)
	}
}

// stop puts the game to sleep at once, and waits until its pod is gone. By itself it sleeps two minutes
// after the last datagram of whoever it was woken for, whose session the resolver has until then.
//
// A client can end without telling the server that it leaves, which then has the player for 30 more
// seconds. kube-proxy may still send a new client to that server, for up to a second, and the server takes
// no second player of the same name.
func (s *shaft) stop(ctx context.Context) {
	s.t.Helper()
	if out, err := kubectl(ctx, "scale", "-n", s.game.Namespace, "gametype/"+s.game.Name, "--replicas=0"); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	s.asleep(ctx)
	pod := &corev1.Pod{}
	err := env.WaitUntil(ctx, "the pod of "+s.place(0).String()+" is gone", func(ctx context.Context) (bool, error) {
		err := suite.Cluster.Client.Get(ctx, s.place(0), pod)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

const (
	// greeting is what a mod says that is put into the world over SFTP.
	greeting = "Welcome back to the shaft."
	// clientGaveUp is what the client says that waited for its ten seconds.
	clientGaveUp = "Connection timed out"
)

// greet puts a mod into the world that greets each player.
func (s *shaft) greet(ctx context.Context, by *share) {
	s.t.Helper()
	mod := `core.register_on_joinplayer(function(p) core.chat_send_player(p:get_player_name(), "` + greeting + `") end)`
	for name, content := range map[string]string{"init.lua": mod, "mod.conf": "name = greeting\n"} {
		if err := os.WriteFile(filepath.Join(by.local, name), []byte(content), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	by.do(ctx, "mkdir worldmods", "mkdir worldmods/greeting",
		"put "+by.local+"/init.lua worldmods/greeting/init.lua", "put "+by.local+"/mod.conf worldmods/greeting/mod.conf")
}

// dig has a player see that what was dug is, and that what isn't isn't, and dig the next block. A
// player whose client gave up tries again.
func (s *shaft) dig(ctx context.Context, greeted bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	look := slices.Concat(s.dug, s.undug)
	stay, err := s.player.Dig(ctx, s.address, look...)
	for err != nil && strings.Contains(err.Error(), clientGaveUp) && ctx.Err() == nil {
		stay, err = s.player.Dig(ctx, s.address, look...)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	for i, place := range look {
		if is := stay.Blocks[place] == "air"; is != (i < len(s.dug)) {
			s.t.Fatalf("the block at %v is %q; dug are %v, and not %v", place, stay.Blocks[place], s.dug, s.undug)
		}
	}
	if got := slices.ContainsFunc(stay.Heard, func(m string) bool { return strings.Contains(m, greeting) }); got != greeted {
		s.t.Fatalf("whether the player is greeted is %t, want %t: %q", got, greeted, stay.Heard)
	}
	s.dug = append(s.dug, stay.Dug)
}

// forget takes it that the last blocks weren't dug.
func (s *shaft) forget(n int) {
	keep := len(s.dug) - n
	s.undug, s.dug = append(s.undug, s.dug[keep:]...), s.dug[:keep]
}
