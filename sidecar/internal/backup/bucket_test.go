package backup

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"dormouse.dev/dormouse/sidecar/internal/backup/fault"
	"dormouse.dev/dormouse/sidecar/internal/backup/store"
	bucketenv "dormouse.dev/dormouse/test/env/bucket"
)

// service is a service with the bucket "backups". It is another program, which `make test-api` builds.
func service(t *testing.T) *bucketenv.Service {
	t.Helper()
	binary := os.Getenv(bucketenv.Asset)
	if binary == "" {
		t.Skip(bucketenv.Asset + ` is not set: run this with "make test-api"`)
	}
	s, err := bucketenv.New(binary, t.TempDir())
	check(t, err)
	check(t, s.MakeBucket("backups"))
	check(t, s.Start(t.Context()))
	t.Cleanup(s.Kill)
	return s
}

func (p place) inBucket(command string, s *bucketenv.Service) Options {
	o := p.options(command)
	o.Archive = store.Location{Bucket: "backups", Key: "a prefix/survival/one.tar.zst"}
	o.S3 = store.S3{Endpoint: s.Endpoint, Region: bucketenv.Region, AccessKeyID: s.AccessKeyID, SecretAccessKey: s.SecretAccessKey}
	return o
}

// left is what is in the bucket: objects, and uploads that aren't finished.
func left(t *testing.T, o Options) (objects, uploads []string) {
	t.Helper()
	client, err := minio.New(strings.TrimPrefix(o.S3.Endpoint, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(o.S3.AccessKeyID, o.S3.SecretAccessKey, ""), Region: o.S3.Region,
	})
	check(t, err)
	for object := range client.ListObjects(t.Context(), o.Archive.Bucket, minio.ListObjectsOptions{Recursive: true}) {
		check(t, object.Err)
		objects = append(objects, object.Key)
	}
	for u := range client.ListIncompleteUploads(t.Context(), o.Archive.Bucket, "", true) {
		check(t, u.Err)
		uploads = append(uploads, u.Key)
	}
	return objects, uploads
}

func TestBucketKeepsAnArchive(t *testing.T) {
	s := service(t)
	p, q := newPlace(t), newPlace(t)
	allKinds(t, p.world)
	noise(t, p.world+"/large", 2*store.PartSize+1)
	want := tree(t, p.world)
	made, err := p.run(t.Context(), t, p.inBucket(commandBackup, s))
	check(t, err)
	o := q.inBucket(commandRestore, s)
	o.SHA256 = made.SHA256
	restored, err := q.run(t.Context(), t, o)
	check(t, err)
	if diff := cmp.Diff(made, restored); diff != "" {
		t.Errorf("reports (-backup +restoration):\n%s", diff)
	}
	same(t, "the world", want, visible(tree(t, q.world)))
	for range 2 {
		_, err = p.run(t.Context(), t, p.inBucket(commandForget, s))
		check(t, err)
	}
	if objects, uploads := left(t, o); len(objects)+len(uploads) > 0 {
		t.Errorf("left: %v, %v", objects, uploads)
	}
	r, err := q.run(t.Context(), t, func() Options { o.ID = "r2"; return o }())
	if exitCode(err) != codeFinal || !strings.Contains(r.Error, "there is no object a prefix/survival/one.tar.zst") {
		t.Errorf("of an archive that isn't there: %v", err)
	}
}

func TestBucketHasNothingOfACanceledBackup(t *testing.T) {
	s := service(t)
	p := newPlace(t)
	noise(t, p.world+"/large", 3*store.PartSize)
	o := p.inBucket(commandBackup, s)
	b, err := store.Open(o.Archive, o.S3, logs(t))
	check(t, err)
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	to, err := b.Create(ctx)
	check(t, err)
	// The pipe has taken a whole part by then, so that there is an upload.
	_, err = pack(ctx, o.Disks, &after{to: to, bytes: store.PartSize + 1, do: func() {
		if _, uploads := left(t, o); len(uploads) != 1 {
			t.Errorf("meanwhile there are %v", uploads)
		}
		cancel()
	}}, logs(t))
	if !errors.Is(err, fault.ErrCanceled) {
		t.Errorf("error %v", err)
	}
	to.Abort(err)
	if objects, uploads := left(t, o); len(objects)+len(uploads) > 0 {
		t.Errorf("left: %v, %v", objects, uploads)
	}
}

// after does something once so many bytes were written.
type after struct {
	to    io.Writer
	bytes int
	do    func()
}

func (a *after) Write(p []byte) (int, error) {
	n, err := a.to.Write(p)
	if a.bytes > 0 && a.bytes <= n {
		a.do()
	}
	a.bytes -= n
	return n, err
}

func TestBucketHasNothingOfABackupThatFails(t *testing.T) {
	s := service(t)
	p := newPlace(t)
	noise(t, p.world+"/large", 2*store.PartSize)
	o := p.inBucket(commandBackup, s)
	o.Disks = append(o.Disks, Disk{"gone", p.world + "/gone"})
	// The disk that isn't there fails it when the first two are uploaded.
	if _, err := p.run(t.Context(), t, o); err == nil || !strings.Contains(err.Error(), "open disk gone") {
		t.Errorf("error %v", err)
	}
	if objects, uploads := left(t, o); len(objects)+len(uploads) > 0 {
		t.Errorf("left: %v, %v", objects, uploads)
	}
}

func TestBucketThatRefusesSaysWhy(t *testing.T) {
	s := service(t)
	p := newPlace(t)
	write(t, p.world+"/level.dat", "the world")
	for name, c := range map[string]struct {
		change func(*Options)
		says   string
	}{
		"another secret":  {func(o *Options) { o.S3.SecretAccessKey = "wrongsecret" }, "the service refuses (SignatureDoesNotMatch)"},
		"another user":    {func(o *Options) { o.S3.AccessKeyID = "wronguser" }, "the service refuses"},
		"no bucket":       {func(o *Options) { o.Archive.Bucket = "nowhere" }, "there is no bucket nowhere at " + s.Endpoint},
		"no certificates": {func(o *Options) { o.S3.Endpoint, o.S3.CAFile = "https"+s.Endpoint[4:], p.world+"/level.dat" }, "has none in PEM"},
	} {
		for _, command := range []string{commandBackup, commandRestore} {
			t.Run(name+", "+command, func(t *testing.T) {
				var logged strings.Builder
				log := funcr.New(func(_, line string) { logged.WriteString(line) }, funcr.Options{Verbosity: 10})
				o := p.inBucket(command, s)
				c.change(&o)
				err := Run(t.Context(), log, o)
				if exitCode(err) != codeFinal || !strings.Contains(err.Error(), c.says) {
					t.Errorf("error %v, want a final one with %q", err, c.says)
				}
				report, readErr := os.ReadFile(o.Report)
				check(t, readErr)
				for _, secret := range []string{o.S3.AccessKeyID, o.S3.SecretAccessKey} {
					if err != nil && strings.Contains(err.Error()+logged.String()+string(report), secret) {
						t.Errorf("the credentials are shown: %v", err)
					}
				}
			})
		}
	}
}

func TestBucketWhoseServiceIsKilled(t *testing.T) {
	s := service(t)
	p := newPlace(t)
	noise(t, p.world+"/large", 3*store.PartSize)
	o := p.inBucket(commandBackup, s)
	b, err := store.Open(o.Archive, o.S3, logs(t))
	check(t, err)
	defer b.Close()
	to, err := b.Create(t.Context())
	check(t, err)
	_, err = pack(t.Context(), o.Disks, &after{to: to, bytes: store.PartSize + 1, do: s.Kill}, logs(t))
	if err == nil {
		err = to.Commit()
	} else {
		to.Abort(err)
	}
	if exitCode(err) != codeFailed {
		t.Errorf("error %v, want one that may be tried again", err)
	}
	check(t, s.Start(t.Context()))
	if objects, uploads := left(t, o); len(objects) > 0 || len(uploads) != 1 {
		t.Errorf("left: %v, %v; want what couldn't be deleted", objects, uploads)
	}
	_, err = p.run(t.Context(), t, o)
	check(t, err)
	if objects, uploads := left(t, o); len(objects) != 1 || len(uploads) > 0 {
		t.Errorf("after the next try there are %v, %v", objects, uploads)
	}
}

func TestBucketWhoseConnectionsBreak(t *testing.T) {
	s := service(t)
	p, q := newPlace(t), newPlace(t)
	noise(t, p.world+"/large", 8<<20)
	want := tree(t, p.world)
	_, err := p.run(t.Context(), t, p.inBucket(commandBackup, s))
	check(t, err)
	o := q.inBucket(commandRestore, s)
	proxy := newBreaking(t, strings.TrimPrefix(s.Endpoint, "http://"), 3<<20)
	o.S3.Endpoint = "http://" + proxy.address
	_, err = q.run(t.Context(), t, o)
	check(t, err)
	same(t, "the world", want, visible(tree(t, q.world)))
	if n := proxy.broken.Load(); n < 2 {
		t.Errorf("%d connections broke", n)
	}
}

// breaking is a relay that breaks each connection after so many bytes of the answer.
type breaking struct {
	address string
	broken  atomic.Int32
}

func newBreaking(t *testing.T, to string, after int64) *breaking {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	b := &breaking{address: ln.Addr().String()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, client)
				server.Close()
			}()
			go func() {
				if n, _ := io.CopyN(client, server, after); n == after {
					b.broken.Add(1)
				}
				client.Close()
				server.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-ended
	})
	return b
}
