package report

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/internal/podstatus"
	"dormouse.dev/dormouse/operator/internal/metrics"
)

const (
	// workers is how many writes are under way at once.
	workers = 16
	// writeTime bounds one write.
	writeTime = 10 * time.Second
	// A write that failed is tried again after minRetry, and twice as long each
	// time up to maxRetry.
	minRetry = 5 * time.Millisecond
	maxRetry = 10 * time.Second
	// fieldOwner is the owner of the fields that are written.
	fieldOwner = "dormouse-report"
)

// +kubebuilder:rbac:groups=dormouse.dev,resources=servers,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=servers/status,verbs=patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=gametypes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch

// Writer writes to the API server what reports change. It is a manager.Runnable that runs on
// each replica.
type Writer struct {
	cached  client.Reader
	client  client.Client
	table   *table
	queue   workqueue.TypedRateLimitingInterface[types.UID]
	metrics *metrics.Reports
	log     logr.Logger
}

func newWriter(cached client.Reader, c client.Client, t *table, m *metrics.Reports, log logr.Logger) *Writer {
	return &Writer{
		cached: cached, client: c, table: t, metrics: m, log: log,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](minRetry, maxRetry),
			workqueue.TypedRateLimitingQueueConfig[types.UID]{Name: "report"}),
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: each replica writes its own
// reports.
func (*Writer) NeedLeaderElection() bool { return false }

// Start writes until the context ends.
func (w *Writer) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			defer utilruntime.HandleCrash()
			for w.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	w.queue.ShutDown()
	running.Wait()
	return nil
}

// offer has a report looked at that was just accepted, if it changes something.
func (w *Writer) offer(server *v1alpha1.Server, s *said) {
	if !compare(w.table.Latest(server), s).none() {
		w.queue.Add(server.UID)
	}
}

func (w *Writer) next(ctx context.Context) bool {
	uid, shutdown := w.queue.Get()
	if shutdown {
		return false
	}
	defer w.queue.Done(uid)
	retryAfter, err := w.write(ctx, uid)
	switch {
	case err == nil:
		w.queue.Forget(uid)
		if retryAfter > 0 {
			w.queue.AddAfter(uid, retryAfter)
		}
	case apierrors.IsNotFound(err), apierrors.IsGone(err):
		// The cache will show it, and then the Server is forgotten.
		w.queue.Forget(uid)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		// The next report has it again.
		w.queue.Forget(uid)
		w.log.Error(err, "The API server refuses what a sidecar reports")
	default:
		if !apierrors.IsConflict(err) && ctx.Err() == nil {
			w.log.Error(err, "A report wasn't written, and is tried again")
		}
		w.queue.AddRateLimited(uid)
	}
	return true
}

// write writes what a Server's last report changes, and returns after how long to look again;
// 0: not before something changes.
func (w *Writer) write(ctx context.Context, uid types.UID) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	defer w.table.Turn(uid)()
	e, s := w.table.pending(uid)
	if e == nil {
		return 0, nil
	}
	server, ready, err := w.current(ctx, uid, e, s)
	if err != nil || server == nil {
		return 0, err
	}
	c := compare(server, s).byDefault(server, ready)
	if c.none() || s.supersededBy(&server.Status) {
		e.write.seen = time.Time{}
		return 0, nil
	}
	now := time.Now()
	if e.write.seen.IsZero() {
		e.write.seen = now
	}
	if atOnce := c.urgent && e.write.urgent.AllowN(now, 1); !atOnce {
		if rest := due(now, e.write.seen, e.write.at, c); rest > 0 {
			return rest, nil
		}
	}
	if server.ResourceVersion == e.write.conflict {
		return 0, apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("servers").GroupResource(), server.Name,
			fmt.Errorf("the cache doesn't have what changed it yet"))
	}
	e.write.conflict = ""
	if err := w.patch(ctx, e, server, c); err != nil {
		if apierrors.IsConflict(err) {
			e.write.conflict = server.ResourceVersion
		}
		return 0, fmt.Errorf("write the report of Server %s: %w", e.server, err)
	}
	e.write.at, e.write.seen = now, time.Time{}
	w.metrics.Wrote(c.reason, time.Since(now))
	return 0, nil
}

// look has a report looked at again because its Pod has become ready.
func (w *Writer) look(uid types.UID) {
	if e, _ := w.table.pending(uid); e != nil {
		w.queue.Add(uid)
	}
}

// current is the latest known Server, and whether its Pod is ready; nil when the Server is
// gone, or the Pod that the report is from.
func (w *Writer) current(ctx context.Context, uid types.UID, e *entry, s *said) (*v1alpha1.Server, bool, error) {
	server, pod := &v1alpha1.Server{}, &corev1.Pod{}
	err := w.cached.Get(ctx, e.server, server, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || err == nil && server.UID != uid {
		w.table.forget(uid)
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read Server %s: %w", e.server, err)
	}
	err = w.cached.Get(ctx, types.NamespacedName{Namespace: e.server.Namespace, Name: s.podName}, pod, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || err == nil && string(pod.UID) != s.podUID {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the Pod of Server %s: %w", e.server, err)
	}
	return w.table.Latest(server), podstatus.Ready(pod), nil
}

// patch writes a change, the status first: a denial must be written even if the metadata is
// refused.
func (w *Writer) patch(ctx context.Context, e *entry, server *v1alpha1.Server, c change) (err error) {
	if c.status != nil {
		if server, err = w.patchStatus(ctx, server, c); err != nil {
			return err
		}
		// The pace holds even if the metadata can't be written.
		e.write.at = time.Now()
	}
	if len(c.labels)+len(c.annotations) > 0 {
		return w.patchMetadata(ctx, server, c)
	}
	return nil
}

// patchStatus and patchMetadata write a change and return the Server after that. Both fail if
// the Server has changed since the change was computed.
func (w *Writer) patchStatus(ctx context.Context, server *v1alpha1.Server, c change) (*v1alpha1.Server, error) {
	is := metav1.ObjectMeta{Namespace: server.Namespace, Name: server.Name, UID: server.UID, ResourceVersion: server.ResourceVersion}
	base := &v1alpha1.Server{ObjectMeta: is, Status: own(&server.Status)}
	// The answer is decoded into it, and must not end up in the report.
	changed := &v1alpha1.Server{ObjectMeta: is, Status: *c.status.DeepCopy()}
	if wrote, err := patch.Status(ctx, w.client, base, changed, client.FieldOwner(fieldOwner)); !wrote {
		return server, err //nolint:wrapcheck // it is a sentence of ours
	}
	w.table.Wrote(changed)
	return changed, nil
}

func (w *Writer) patchMetadata(ctx context.Context, server *v1alpha1.Server, c change) error {
	base := reduced(server)
	changed := base.DeepCopy()
	changed.Labels, changed.Annotations = merged(changed.Labels, c.labels), merged(changed.Annotations, c.annotations)
	p := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := w.client.Patch(ctx, changed, p, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("write the metadata: %w", err)
	}
	w.table.Wrote(changed)
	return nil
}

// reduced is the part of a Server that reports are compared with.
func reduced(server *v1alpha1.Server) *v1alpha1.Server {
	return &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: server.Namespace, Name: server.Name, UID: server.UID, ResourceVersion: server.ResourceVersion,
			DeletionTimestamp: server.DeletionTimestamp, Labels: server.Labels, Annotations: server.Annotations,
		},
		Spec:   v1alpha1.ServerSpec{Drain: server.Spec.Drain, Players: server.Spec.Players},
		Status: own(&server.Status),
	}
}

func merged(have, more map[string]string) map[string]string {
	all := maps.Clone(have)
	if all == nil {
		all = make(map[string]string, len(more))
	}
	maps.Copy(all, more)
	return all
}
