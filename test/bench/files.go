package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/env"
)

const (
	// manyFiles and largeFile are what is put and got.
	manyFiles = 10_000
	largeFile = 1 << 30
	// wholeTransfer bounds one of them.
	wholeTransfer = 5 * time.Minute
)

// filesFigures are what files.json has.
type filesFigures struct {
	Runs int `json:"runs"`
	// Asleep is of files that nobody has: the prompt is when the client's first command may come.
	PacketToPod       quantiles `json:"asleep_packet_to_pod_ms"`
	PodToFirstByte    quantiles `json:"asleep_pod_to_first_byte_ms"`
	FirstByteToPrompt quantiles `json:"asleep_first_byte_to_prompt_ms"`
	Total             quantiles `json:"asleep_packet_to_prompt_ms"`
	// PodShare is what part of that, at p50, is the pod's start.
	PodShare float64 `json:"asleep_share_of_the_pods_start"`
	// Awake is of files that somebody has already.
	Awake quantiles `json:"awake_packet_to_prompt_ms"`
	// ManyPut, ManyGot, LargePut and LargeGot are seconds that OpenSSH's sftp took; Resumed is of an
	// upload of the large file that had ended in its middle.
	ManyPut  float64 `json:"put_10000_files_s"`
	ManyGot  float64 `json:"get_10000_files_s"`
	LargePut float64 `json:"put_1_gib_s"`
	LargeGot float64 `json:"get_1_gib_s"`
	Resumed  float64 `json:"resume_half_a_gib_s"`
}

// login is the times of one login. All clocks are this machine's one.
type login struct{ podMade, firstByte, prompt, total time.Duration }

func benchFiles(ctx context.Context, e *env.Env, o options) (_ any, err error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	if err := e.Client.Create(ctx, ns); err != nil {
		return nil, fmt.Errorf("create a namespace: %w", err)
	}
	defer func() { err = errors.Join(err, e.Client.Delete(context.WithoutCancel(ctx), ns)) }()
	dir, err := os.MkdirTemp("", "dormouse-files-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	user, err := e.SFTP(ctx, dir, os.Stderr)
	if err != nil {
		return nil, err
	}
	if err := e.Client.Create(ctx, user.Secret(ns.Name, "users")); err != nil {
		return nil, fmt.Errorf("create a Secret: %w", err)
	}
	game := sleeper{env.Game{Namespace: ns.Name, Name: "shelf", TCP: []int32{env.GameTCP}}, &v1alpha1.GameType{}}
	if err := e.CreateGameType(ctx, ns.Name, game.Name, 1, func(s *v1alpha1.GameTypeSpec) {
		s.Template.Spec.Storage = []v1alpha1.StorageSpec{{Name: "world", MountPath: "/world", Size: resource.MustParse("3Gi")}}
		s.Files = &v1alpha1.FilesSpec{Secret: "users"}
	}); err != nil {
		return nil, err
	}
	if _, err := sleepNow(ctx, e, game); err != nil {
		return nil, err
	}
	files := sleeper{env.Game{Namespace: ns.Name, Name: "shelf-0-files", TCP: []int32{22}}, &appsv1.Deployment{}}
	if _, err := e.WaitPhase(ctx, files.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
		return nil, err
	}
	f := filesFigures{Runs: o.runs}
	if err := f.logins(ctx, e, files, user, o.runs); err != nil {
		return nil, err
	}
	if err := f.transfers(ctx, e, files, user, dir); err != nil {
		return nil, err
	}
	f.print()
	return f, nil
}

// logins measures logins, asleep and, right after each, awake.
func (f *filesFigures) logins(ctx context.Context, e *env.Env, files sleeper, user *env.SFTP, runs int) error {
	var podMade, firstByte, prompt, total, awake []time.Duration
	for i := range runs {
		address, err := sleepNow(ctx, e, files)
		if err != nil {
			return fmt.Errorf("login %d: %w", i+1, err)
		}
		created, err := first(ctx, e, files, &corev1.PodList{}, func(event watch.Event) (time.Time, bool) {
			return time.Now(), event.Type == watch.Added
		})
		if err != nil {
			return err
		}
		began := time.Now()
		l, err := loginOnce(ctx, e, user, address)
		if err != nil {
			return fmt.Errorf("login %d: %w", i+1, err)
		}
		made, err := within(ctx, created)
		if err != nil {
			return fmt.Errorf("login %d: wait for its pod: %w", i+1, err)
		}
		if _, err := e.WaitPhase(ctx, files.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeProxy); err != nil {
			return err
		}
		again, err := loginOnce(ctx, e, user, address)
		if err != nil {
			return fmt.Errorf("login %d, awake: %w", i+1, err)
		}
		l.podMade = made.Sub(began)
		fmt.Fprintf(os.Stderr, "login %2d of %d: %7.1f ms asleep, %5.1f ms awake\n", i+1, runs, milliseconds(l.total), milliseconds(again.total))
		podMade, firstByte, prompt = append(podMade, l.podMade), append(firstByte, l.firstByte-l.podMade), append(prompt, l.prompt)
		total, awake = append(total, l.total), append(awake, again.total)
	}
	f.PacketToPod, f.PodToFirstByte, f.FirstByteToPrompt = quantilesOf(podMade), quantilesOf(firstByte), quantilesOf(prompt)
	f.Total, f.Awake = quantilesOf(total), quantilesOf(awake)
	f.PodShare = f.PodToFirstByte.P50 / f.Total.P50
	return nil
}

// loginOnce logs in, and asks for the first directory.
func loginOnce(ctx context.Context, e *env.Env, user *env.SFTP, address string) (login, error) {
	ctx, cancel := context.WithTimeout(ctx, oneWake)
	defer cancel()
	began := time.Now()
	raw, err := e.DialPlayer(ctx, "tcp", address)
	if err != nil {
		return login{}, fmt.Errorf("dial %s: %w", address, err)
	}
	c := &firstByteConn{Conn: raw}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	config, err := user.Config()
	if err != nil {
		return login{}, err
	}
	conn, channels, requests, err := ssh.NewClientConn(c, address, config)
	if err != nil {
		return login{}, fmt.Errorf("log in: %w", err)
	}
	session, err := sftp.NewClient(ssh.NewClient(conn, channels, requests))
	if err != nil {
		return login{}, fmt.Errorf("begin SFTP: %w", err)
	}
	now := time.Now()
	_, err = session.ReadDir("/")
	return login{firstByte: c.at.Sub(began), prompt: now.Sub(c.at), total: now.Sub(began)}, errors.Join(err, session.Close())
}

// firstByteConn notes when the first byte came.
type firstByteConn struct {
	net.Conn
	at time.Time
}

func (c *firstByteConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.at.IsZero() {
		c.at = time.Now()
	}
	return n, err
}

// transfers measures OpenSSH's sftp, and checks each byte that it got back.
func (f *filesFigures) transfers(ctx context.Context, e *env.Env, files sleeper, user *env.SFTP, dir string) error {
	address, err := e.ClusterIP(ctx, files.Key(), 22, corev1.IPv4Protocol)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir+"/many", 0o755); err != nil {
		return fmt.Errorf("make files: %w", err)
	}
	for i := range manyFiles {
		if err := os.WriteFile(fmt.Sprintf("%s/many/%05d", dir, i), fmt.Appendf(nil, "file %d\n", i), 0o644); err != nil {
			return fmt.Errorf("make files: %w", err)
		}
	}
	want, err := randomFile(dir+"/large", largeFile)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		took    *float64
		command string
	}{
		{&f.ManyPut, "put -R " + dir + "/many"},
		{&f.ManyGot, "get -R many " + dir + "/back"},
		{&f.LargePut, "put " + dir + "/large"},
		{&f.LargeGot, "get large " + dir + "/got"},
	} {
		if err := timed(ctx, step.took, func(ctx context.Context) error { _, err := user.Do(ctx, address, step.command); return err }); err != nil {
			return err
		}
	}
	if got, err := sumOf(dir + "/got"); err != nil || got != want {
		return errors.Join(err, errors.New("the large file isn't what was put"))
	}
	for i := range manyFiles {
		if got, err := os.ReadFile(fmt.Sprintf("%s/back/%05d", dir, i)); err != nil || string(got) != fmt.Sprintf("file %d\n", i) {
			return errors.Join(err, fmt.Errorf("file %d isn't what was put, but %q", i, got))
		}
	}
	// As a client that was cut off in the middle.
	if err := os.Remove(dir + "/got"); err != nil {
		return fmt.Errorf("remove a file: %w", err)
	}
	if err := half(dir+"/large", dir+"/half"); err != nil {
		return err
	}
	if _, err := user.Do(ctx, address, "put "+dir+"/half resumed"); err != nil {
		return err
	}
	if err := timed(ctx, &f.Resumed, func(ctx context.Context) error {
		_, err := user.Do(ctx, address, "reput "+dir+"/large resumed")
		return err
	}); err != nil {
		return err
	}
	if _, err := user.Do(ctx, address, "get resumed "+dir+"/got"); err != nil {
		return err
	}
	if got, err := sumOf(dir + "/got"); err != nil || got != want {
		return errors.Join(err, errors.New("the file that was resumed isn't what was put"))
	}
	return nil
}

// timed notes how many seconds something took.
func timed(ctx context.Context, took *float64, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, wholeTransfer)
	defer cancel()
	began := time.Now()
	err := do(ctx)
	*took = time.Since(began).Seconds()
	return err
}

func randomFile(path string, size int64) (sum [sha256.Size]byte, err error) {
	file, err := os.Create(path)
	if err != nil {
		return sum, fmt.Errorf("make a file: %w", err)
	}
	hash := sha256.New()
	_, err = io.CopyN(io.MultiWriter(file, hash), rand.Reader, size)
	return [sha256.Size]byte(hash.Sum(nil)), errors.Join(err, file.Close())
}

func sumOf(path string) (sum [sha256.Size]byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return sum, fmt.Errorf("read a file: %w", err)
	}
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	return [sha256.Size]byte(hash.Sum(nil)), errors.Join(err, file.Close())
}

// half copies the first half of a file.
func half(from, to string) error {
	in, err := os.Open(filepath.Clean(from))
	if err != nil {
		return fmt.Errorf("read a file: %w", err)
	}
	out, err := os.Create(to)
	if err != nil {
		return errors.Join(fmt.Errorf("make a file: %w", err), in.Close())
	}
	_, err = io.CopyN(out, in, largeFile/2)
	return errors.Join(err, in.Close(), out.Close())
}

func (f *filesFigures) print() {
	fmt.Printf("%d logins to the files of a server that sleeps:\n", f.Runs)
	fmt.Println("  packet -> Pod object   ", f.PacketToPod)
	fmt.Println("  Pod object -> 1st byte ", f.PodToFirstByte)
	fmt.Println("  1st byte -> prompt     ", f.FirstByteToPrompt)
	fmt.Println("  packet -> prompt       ", f.Total)
	fmt.Printf("  the pod's start is %.0f %% of that\n", 100*f.PodShare)
	fmt.Println("  the same, awake        ", f.Awake)
	fmt.Printf("10,000 files: put in %.1f s, got in %.1f s. 1 GiB: put in %.1f s, got in %.1f s; half of it resumed in %.1f s\n", f.ManyPut, f.ManyGot, f.LargePut, f.LargeGot, f.Resumed)
}
