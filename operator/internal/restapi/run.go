package restapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/operator/internal/restapi/access"
	"dormouse.dev/dormouse/operator/internal/restapi/allocate"
	"dormouse.dev/dormouse/operator/internal/restapi/feed"
	"dormouse.dev/dormouse/operator/internal/restapi/gamecalls"
	"dormouse.dev/dormouse/operator/internal/restapi/hosting"
	"dormouse.dev/dormouse/operator/internal/restapi/page"
)

const (
	// shutdownTime bounds how long calls under way may take once the program ends.
	shutdownTime = 20 * time.Second
	// leaveTime is how long it goes on taking calls after it says that it isn't ready: those who send
	// it some learn of that first.
	leaveTime = 3 * time.Second
)

// Server is the API: its handler, and the memory behind it.
type Server struct {
	// Handler answers calls.
	Handler http.Handler
	cache   cache.Cache
	feed    *feed.Feed
	// endStreams ends all streams, which don't end by themselves.
	endStreams func()
}

// New makes the API of a cluster.
func New(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, o Options, p program.Process, metrics *Metrics) (*Server, error) {
	config = rest.CopyConfig(config)
	// The API server's priority and fairness limits the rate, and does it better.
	config.QPS = -1
	// A call that hangs is answered before its own caller gives up.
	config.Timeout = callTime
	live, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	watching := rest.CopyConfig(config)
	watching.Timeout = 0 // which would end each watch and each stream
	set, err := kubernetes.NewForConfig(watching)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	cached, err := cache.New(watching, cache.Options{
		Scheme: scheme, DefaultNamespaces: map[string]cache.Config{o.Namespace: {}}, DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("make a cache: %w", err)
	}
	service, err := allocate.New(ctx, cached, live, live)
	if err != nil {
		return nil, fmt.Errorf("prepare allocations: %w", err)
	}
	ending := make(chan struct{})
	reviewer := access.New(set, newUnknowns())
	s := &servers{
		hosting: &hosting.Hosting{
			Client: live, Cached: cached, Now: time.Now, Namespace: o.Namespace, PublicAddress: o.PublicAddress,
			Nodes: &hosting.NodeAddress{Client: live, Now: time.Now}, Money: o.Prices.Amount,
		},
		access:  reviewer,
		metrics: metrics,
		streams: &streams{client: set, namespace: o.Namespace, metrics: metrics, ending: ending, total: maxStreams, ofUser: maxStreamsOfUser, what: "streams", those: map[[32]byte]int{}},
		now:     time.Now,
	}
	mux := http.NewServeMux()
	api := newAPI(mux)
	g := &gate{
		access: reviewer, rate: rate.Limit(o.Rate), burst: o.Burst, rates: utilcache.NewLRUExpireCache(limiters),
		metrics: metrics, log: p.Log.WithName("api"), now: time.Now,
	}
	api.UseMiddleware(g.middleware)
	registerHealth(api)
	s.register(api)
	s.registerStreams(api)
	a := &allocations{
		service: service, access: reviewer, namespace: o.Namespace,
		waiting: &streams{metrics: metrics, total: maxWaiting, ofUser: maxWaitingOfUser, what: "waiting", those: map[[32]byte]int{}},
	}
	a.register(api)
	calls := gamecalls.New(cached, o.Namespace)
	calls.Port = cmp.Or(o.SidecarPort, calls.Port)
	(&processes{calls}).register(api)
	mux.HandleFunc(root, strays(mux))
	changes := feed.New(s.hosting, time.Now, p.Log.WithName("feed"))
	mux.Handle("/", logging(p.Log.WithName("page"), page.New(people{s, g, changes}, page.Options{Log: p.Log.WithName("page"), Secure: o.CertFile != "" || o.BehindTLS})))
	return &Server{Handler: recovering(p, bounded(withoutSlash(endingWith(ending, mux)))), cache: cached, feed: changes, endStreams: func() { close(ending) }}, nil
}

// logging gives requests a log, and notes the address that they come from.
func logging(log logr.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(logr.NewContext(withSource(r.Context(), r.RemoteAddr), log)))
	})
}

// endingWith ends the page's streams, and calls that wait for a Server, when the program ends. Other
// requests may end by themselves.
func endingWith(ending <-chan struct{}, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/live") || r.URL.Path == allocatePath {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			go func() {
				select {
				case <-ending:
					cancel()
				case <-ctx.Done():
				}
			}()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// recovering answers a call that panics with an error, and reports it.
func recovering(p program.Process, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil || v == http.ErrAbortHandler { //nolint:errorlint // it is this very value
				return
			}
			p.Log.Error(nil, "A call panicked", "path", r.URL.Path, "panic", v)
			if p.Errors != nil {
				p.Errors.Panic(v, debug.Stack())
			}
			answer(w, fail(http.StatusInternalServerError, "", "Something went wrong that isn't yours to change: the log of the API says what."))
		}()
		next.ServeHTTP(w, r)
	})
}

// kinds are those that are kept in memory.
func kinds() []client.Object {
	return []client.Object{&v1alpha1.Server{}, &v1alpha1.ElasticService{}, &corev1.Service{}}
}

// Start fills the memory, and keeps it up to date until ctx ends. It calls filled once it is.
func (s *Server) Start(ctx context.Context, filled func()) error {
	for _, o := range kinds() {
		informer, err := s.cache.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(s.feed.Handler())
		}
		if err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if !s.cache.WaitForCacheSync(ctx) {
			return nil
		}
		filled()
		return s.feed.Run(ctx)
	})
	g.Go(func() error { return s.cache.Start(ctx) })
	if err := g.Wait(); err != nil {
		return fmt.Errorf("watch the cluster: %w", err)
	}
	return nil
}

// Run runs the API until ctx ends.
func Run(ctx context.Context, p program.Process, config *rest.Config, scheme *runtime.Scheme, o Options) error {
	registry := p.NewRegistry()
	metrics := NewMetrics(registry)
	s, err := New(ctx, config, scheme, o, p, metrics)
	if err != nil {
		return err
	}
	var filled, leaving atomic.Bool
	own := httpserver.New(httpserver.Options{
		Address: o.OwnListen, Gatherer: registry, Registerer: registry, Log: p.Log.WithName("http"), OnPanic: p.Errors.Panic,
		Ready: func() error {
			if leaving.Load() {
				return errors.New("it ends")
			}
			if !filled.Load() {
				return errors.New("the servers are not read yet")
			}
			return nil
		},
	})
	if err := own.Listen(ctx); err != nil {
		return err
	}
	var listening net.ListenConfig
	ln, err := listening.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", o.Listen, err)
	}
	if o.Listening != nil {
		o.Listening(ln.Addr())
	}
	ln = httpserver.NewGate(ln, httpserver.Bounds{
		Connections: maxConnections, OfCaller: maxOfCaller, Unanswered: maxUnanswered, OfRequest: ofRequest,
	}, metrics.closed, p.Log.WithName("http"))
	// What calls need goes on until the last of them is answered.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, running := errgroup.WithContext(running)
	if o.CertFile != "" {
		certificate, err := certwatcher.New(o.CertFile, o.KeyFile)
		if err != nil {
			return errors.Join(fmt.Errorf("read the certificate: %w", err), ln.Close())
		}
		ln = tls.NewListener(ln, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.GetCertificate, NextProtos: []string{"h2", "http/1.1"}})
		g.Go(func() error { return certificate.Start(running) })
	}
	web := newWeb(s.Handler)
	web.RegisterOnShutdown(s.endStreams)
	g.Go(func() error { return own.Start(running) })
	g.Go(func() error { return s.Start(running, func() { filled.Store(true) }) })
	g.Go(func() error {
		if err := web.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the API: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		defer stop()
		select {
		case <-ctx.Done():
			leaving.Store(true)
			after := time.NewTimer(leaveTime)
			defer after.Stop()
			select {
			case <-after.C:
			case <-running.Done():
			}
		case <-running.Done():
		}
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		if err := web.Shutdown(ending); err != nil {
			return web.Close()
		}
		return nil
	})
	p.Log.Info("The API answers", "address", ln.Addr().String(), "namespace", o.Namespace, "tls", o.CertFile != "")
	return g.Wait()
}
