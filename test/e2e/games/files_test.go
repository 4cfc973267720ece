package games

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/env/node"
)

const (
	// smallFiles and largeFile are what is put: `make bench-files` puts 10,000 and 1 GiB.
	smallFiles = 1000
	largeFile  = 32 << 20
)

// share is somebody who has the files of a world's first place.
type share struct {
	*env.SFTP
	t       *testing.T
	address string
	local   string
}

// newShare lets somebody have a world's files: files is put into the GameType's spec by the caller.
func newShare(ctx context.Context, t *testing.T, namespace string) (*share, *v1alpha1.FilesSpec) {
	t.Helper()
	user, err := suite.Cluster.SFTP(ctx, t.TempDir(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.Client.Create(ctx, user.Secret(namespace, "world-files")); err != nil {
		t.Fatal(err)
	}
	return &share{SFTP: user, t: t, local: t.TempDir()}, &v1alpha1.FilesSpec{
		Secret: "world-files", Service: v1alpha1.FilesServiceSpec{Type: v1alpha1.GameServiceNodePort},
	}
}

// find waits for the Service of a place's files.
func (s *share) find(ctx context.Context, w *world) {
	s.t.Helper()
	s.findServer(ctx, w.game.Namespace, w.place(0).Name)
}

// findServer waits until a Server's files can be reached, asleep.
func (s *share) findServer(ctx context.Context, namespace, server string) {
	s.t.Helper()
	files := env.Game{Namespace: namespace, Name: server + "-files"}
	es, err := suite.Cluster.WaitPhase(ctx, files.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := suite.Cluster.WaitRouted(ctx, es, 1); err != nil {
		s.t.Fatal(err)
	}
	s.address = suite.NodePort(ctx, s.t, files, 22, 2)
}

// do runs commands that must succeed.
func (s *share) do(ctx context.Context, commands ...string) string {
	s.t.Helper()
	out, err := s.Do(ctx, s.address, commands...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// write makes a local file of so many random bytes.
func (s *share) write(name string, size int) [sha256.Size]byte {
	s.t.Helper()
	content := make([]byte, size)
	_, _ = rand.Read(content)
	path := filepath.Join(s.local, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		s.t.Fatal(err)
	}
	return sha256.Sum256(content)
}

// same checks that a local file has a content.
func (s *share) same(name string, want [sha256.Size]byte) {
	s.t.Helper()
	content, err := os.ReadFile(filepath.Join(s.local, name))
	if err != nil {
		s.t.Error(err)
	} else if sha256.Sum256(content) != want {
		s.t.Errorf("%s isn't what was put, but %d other bytes", name, len(content))
	}
}

// Somebody puts and gets the files of a world with OpenSSH's client: asleep, where no game is started by
// it, across a wake, and while the game runs; and the game finds them. A player plays all the while as
// ever, and the pod that serves the files is gone after that.
func TestAWorldsFilesAreAtHand(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	s, files := newShare(ctx, t, ns)
	w := newWorld(ctx, t, ns, 1, func(spec *v1alpha1.GameTypeSpec) {
		spec.Sleep = &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: time.Second}}
		spec.Files = files
	})
	w.ready(ctx, 0)
	s.find(ctx, w)
	address := suite.ClusterIP(ctx, t, w.game, node.MinecraftPort)
	w.mine(ctx, address, 0)
	asleep := func() *v1alpha1.ElasticService {
		t.Helper()
		es, err := suite.Cluster.WaitPhase(ctx, w.game.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
		if err != nil {
			t.Fatal(err)
		}
		return es
	}
	before := asleep()

	sums := map[string][sha256.Size]byte{}
	for i := range smallFiles {
		name := fmt.Sprintf("small/%04d", i)
		sums[name] = s.write(name, i)
	}
	large := s.write("large", largeFile)
	s.do(ctx, "put -R "+s.local+"/small", "put "+s.local+"/large", "ls -l region")
	if after := asleep(); !after.Status.LastWakeTime.Equal(before.Status.LastWakeTime) {
		t.Errorf("the game whose files they are was woken at %s", after.Status.LastWakeTime)
	}

	// A session is there while the game wakes, is played on, and sleeps.
	open, err := s.Command(ctx, s.address, "-")
	if err != nil {
		t.Fatal(err)
	}
	commands, err := open.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := open.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	open.Stderr = os.Stderr
	if err := suite.Cluster.Cluster.InPlayer(open.Start); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	say := func(command, answer string) {
		t.Helper()
		if _, err := fmt.Fprintf(commands, "%s\n!echo done %s\n", command, answer); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			if strings.TrimSpace(lines.Text()) == "done "+answer {
				return
			}
		}
		t.Fatalf("the session ended before %q was done: %v", command, lines.Err())
	}
	say("get large "+s.local+"/asleep", "asleep")
	w.mine(ctx, address, 1, 0)
	player := w.join(ctx, address, 2, 0, 1)
	say("get large "+s.local+"/awake", "awake")
	say("get -R small "+s.local+"/back", "small")
	s.do(ctx, "put "+s.local+"/large beside", "get beside "+s.local+"/beside")
	if err := player.Leave(); err != nil {
		t.Errorf("who played while files were read was cut off: %v", err)
	}
	asleep()
	say("get large "+s.local+"/later", "later")
	_ = commands.Close()
	if err := open.Wait(); err != nil {
		t.Errorf("the session that was there all the while ended with %v", err)
	}
	for _, name := range []string{"asleep", "awake", "beside", "later"} {
		s.same(name, large)
	}
	for name, sum := range sums {
		s.same(strings.Replace(name, "small", "back", 1), sum)
	}

	// A part of an upload goes on where it ended.
	content, err := os.ReadFile(s.local + "/large")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.local+"/part", content[:largeFile/3], 0o644); err != nil {
		t.Fatal(err)
	}
	s.do(ctx, "put "+s.local+"/part resumed", "reput "+s.local+"/large resumed", "get resumed "+s.local+"/resumed")
	s.same("resumed", large)

	// Nobody is there any more.
	err = env.WaitUntil(ctx, "the pod that served the files is gone", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := suite.Cluster.Client.List(ctx, &pods, client.InNamespace(ns))
		return len(pods.Items) == 0, err
	})
	if err != nil {
		t.Error(err)
	}
	w.mine(ctx, address, 3, 0, 1, 2)
}
