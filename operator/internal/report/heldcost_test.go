package report

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/internal/serviceauth"
)

// crowd is many Servers with a Pod each, which are their own cache and tokens.
type crowd struct {
	client.Reader
	servers map[string]*v1alpha1.Server
	pods    map[string]*corev1.Pod
}

func newCrowd(size int) *crowd {
	c := &crowd{servers: map[string]*v1alpha1.Server{}, pods: map[string]*corev1.Pod{}}
	for i := range size {
		name, uid := fmt.Sprintf("crowd-%d", i), fmt.Sprintf("uid-%d", i)
		c.servers[name] = server(func(s *v1alpha1.Server) { s.Name, s.UID = name, types.UID(uid) })
		c.pods[name] = pod("games", name, "pod-"+uid, ownedBy(name, uid))
	}
	return c
}

func (c *crowd) Verify(_ context.Context, token string) (serviceauth.Identity, error) {
	return ofPod("games", "default", token, string(c.pods[token].UID)), nil
}

func (c *crowd) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch into := o.(type) {
	case *v1alpha1.Server:
		if s := c.servers[key.Name]; s != nil {
			*into = *s
			return nil
		}
	case *corev1.Pod:
		if p := c.pods[key.Name]; p != nil {
			*into = *p
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// memory is what live objects and stacks take.
func memory() int64 {
	runtime.GC()
	runtime.GC() // pools keep what they have for one more
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// A report that is held costs its connection, what it said and little else. At the replica's end each
// is answered.
func TestAHeldReportCostsLittle(t *testing.T) {
	const size = 2000
	all := newCrowd(size)
	w := newWriter(all, nil, newTable(), nil, logr.Discard()) // it writes nothing
	t.Cleanup(w.queue.ShutDown)
	r := start(t, cluster(t), "127.0.0.1:0", func(r *replica) {
		r.report.cached, r.report.verifier, r.report.maxHeld, r.report.writer = all, all, size, w
		r.report.hold = time.Hour
	})
	connections := make([]net.Conn, 0, size)
	t.Cleanup(func() {
		for _, c := range connections {
			_ = c.Close()
		}
	})
	// Earlier tests may have left something, which only makes it seem less.
	goroutines, bytes := runtime.NumGoroutine(), memory()
	for name := range all.servers {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		connections = append(connections, c)
		said := next(1, func(r *reportapi.Report) {
			r.Server, r.Seen = name, Answer(all.servers[name], all.pods[name], &v1alpha1.GameType{}).Version
		})
		text, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", reportapi.ReportPath, name, len(text), text); err != nil {
			t.Fatal(err)
		}
		// One after the other, so that few need somebody at a time.
		r.eventually("it is held", func() bool { return int(r.report.held.Load()) == len(connections) })
	}
	if n := runtime.NumGoroutine() - goroutines; n > size/10 {
		t.Errorf("%d goroutines are there for %d held reports", n, size)
	} else {
		t.Logf("%d goroutines", n)
	}
	// Both ends of the connection are in it, too.
	each := (memory() - bytes) / size
	if each > 4<<10 {
		t.Errorf("each held report takes %d bytes, want 4 KiB at most", each)
	}
	t.Logf("%d bytes each", each)
	began := time.Now()
	r.stop()
	for _, c := range connections {
		_ = c.SetReadDeadline(time.Now().Add(within))
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK || !res.Close {
			t.Fatalf("answered %d, closed is %t; want 200 and true", res.StatusCode, res.Close)
		}
	}
	t.Logf("all answered after %s", time.Since(began))
}
