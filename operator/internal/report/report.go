package report

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/podstatus"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/internal/tokenfile"
	"dormouse.dev/dormouse/operator/internal/metrics"
)

// Options are what the package needs.
type Options struct {
	// Cache has the Pods of Servers and of the operator, and the Servers with
	// IndexOwner.
	Cache cache.Cache
	// Client writes to the API server.
	Client client.Client
	// Verifier verifies tokens.
	Verifier Verifier
	// Operators identifies the operator's Pods.
	Operators Operators
	// Self is the name of this replica's own Pod, Port is the port on which each replica
	// answers, and Token is the token with which they identify themselves to each other.
	Self  string
	Port  int
	Token *tokenfile.File
	// Metrics counts; nil: nothing is counted.
	Metrics *metrics.Reports
	// Log takes errors that a sidecar can't fix.
	Log logr.Logger
}

// Reports is the report server of one replica: its handlers, the worker that writes, and the
// client for the other replicas.
type Reports struct {
	// Writer must be run on each replica.
	Writer *Writer
	// Peers asks all replicas for their recent reports.
	Peers *Peers

	// table also knows how writes at this replica left the Servers.
	*table

	cache  cache.Cache
	report *Handler
	recent *recentHandler
}

// New makes the report server.
func New(o Options) *Reports {
	t := newTable()
	d := newDesk(idleTime, takers)
	w := newWriter(o.Cache, o.Client, t, o.Metrics, o.Log)
	return &Reports{
		Writer: w,
		Peers: &Peers{
			cached: o.Cache, table: t, operators: o.Operators, self: o.Self, port: o.Port, token: o.Token,
			http: &http.Client{
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
				Transport:     &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute},
			},
		},
		cache: o.Cache,
		table: t,
		report: &Handler{
			verifier: o.Verifier, cached: o.Cache, table: t, writer: w, metrics: o.Metrics, hold: reportapi.HoldTime, firstHold: rand.N[time.Duration], maxHeld: MaxHeld, desk: d, line: newLine(d, lookers),
		},
		recent: &recentHandler{verifier: o.Verifier, cached: o.Cache, operators: o.Operators, table: t, metrics: o.Metrics},
	}
}

// Look has the sidecar of a Server's Pod look anew whether the Server may be deleted now.
func (r *Reports) Look(ctx context.Context, server *v1alpha1.Server, podUID types.UID) reportapi.Looked {
	return r.Peers.Look(ctx, server, podUID)
}

// LookPatiently is Look, and waits for a sidecar that is on its way from a replica that has ended.
func (r *Reports) LookPatiently(ctx context.Context, server *v1alpha1.Server, podUID types.UID) reportapi.Looked {
	return r.Peers.LookPatiently(ctx, server, podUID)
}

// Register registers the endpoints for reports, and for other replicas.
func (r *Reports) Register(s *httpserver.Server) {
	r.report.Register(s)
	r.recent.register(s)
	lookHandler{r.recent}.register(s)
}

// SetupIndexes adds the index that the package uses.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &v1alpha1.Server{}, IndexOwner, func(o client.Object) []string { return Owners(o)[1:] }); err != nil {
		return fmt.Errorf("add the index %s: %w", IndexOwner, err)
	}
	return nil
}

// Watch fills the caches of Servers and their Pods, and has held reports looked at again when
// one of them changes. It must be called before the cache is started.
func (r *Reports) Watch(ctx context.Context) error {
	if _, err := r.cache.GetInformer(ctx, &v1alpha1.GameType{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watch GameTypes: %w", err)
	}
	servers, err := r.cache.GetInformer(ctx, &v1alpha1.Server{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch Servers: %w", err)
	}
	_, err = servers.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, o any) { r.notify(uidOf(o)) },
		DeleteFunc: func(o any) { r.forget(uidOf(o)) },
	})
	if err != nil {
		return fmt.Errorf("watch Servers: %w", err)
	}
	pods, err := r.cache.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch Pods: %w", err)
	}
	_, err = pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, o any) {
			r.notify(ownerOf(o))
			before, ok1 := old.(*corev1.Pod)
			after, ok2 := o.(*corev1.Pod)
			if ok1 && ok2 && !podstatus.Ready(before) && podstatus.Ready(after) {
				r.Writer.look(ownerOf(o))
			}
		},
		DeleteFunc: func(o any) { r.notify(ownerOf(o)) },
	})
	if err != nil {
		return fmt.Errorf("watch Pods: %w", err)
	}
	return nil
}

func uidOf(o any) types.UID {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if object, ok := o.(client.Object); ok {
		return object.GetUID()
	}
	return ""
}

func ownerOf(o any) types.UID {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if object, ok := o.(client.Object); ok {
		if owner := metav1.GetControllerOf(object); owner != nil {
			return owner.UID
		}
	}
	return ""
}
