// Package setup assembles the operator: manager, caches, controllers, and the endpoints for
// wakes and reports.
package setup

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/cachestore"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/objectmetrics"
	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/internal/serviceauth"
	"dormouse.dev/dormouse/internal/tokenfile"
	"dormouse.dev/dormouse/operator/internal/autoscaler"
	"dormouse.dev/dormouse/operator/internal/disks/copies"
	"dormouse.dev/dormouse/operator/internal/elasticservice"
	"dormouse.dev/dormouse/operator/internal/elasticservice/targetwatch"
	"dormouse.dev/dormouse/operator/internal/fleet"
	"dormouse.dev/dormouse/operator/internal/fronts"
	"dormouse.dev/dormouse/operator/internal/gameserver"
	"dormouse.dev/dormouse/operator/internal/gametype"
	"dormouse.dev/dormouse/operator/internal/gametype/firstpods"
	"dormouse.dev/dormouse/operator/internal/garbage"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/informer"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/options"
	"dormouse.dev/dormouse/operator/internal/outbound"
	"dormouse.dev/dormouse/operator/internal/promquery"
	"dormouse.dev/dormouse/operator/internal/raising"
	"dormouse.dev/dormouse/operator/internal/report"
	"dormouse.dev/dormouse/operator/internal/reportkeys"
	"dormouse.dev/dormouse/operator/internal/resolverports"
	"dormouse.dev/dormouse/operator/internal/resolvers"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/trigger"
	"dormouse.dev/dormouse/operator/internal/triggerauth"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=dormouse-system,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:groups="",namespace=dormouse-system,resources=events,verbs=create

// LeaderElectionID is the name of the Lease with which replicas choose a leader.
const LeaderElectionID = "operator.dormouse.dev"

// Scheme has the kinds that the operator reads and writes.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	return scheme, nil
}

// Run runs the operator until ctx ends.
func Run(ctx context.Context, p program.Process, config *rest.Config, o options.Options) error {
	takePlaces()
	// The API server's priority and fairness limits the rate, and does it better.
	config.QPS = -1
	stored := &cachestore.Store[*v1alpha1.Server]{}
	plain, err := newManager(config, o, stored)
	if err != nil {
		return err
	}
	mgr := manager{Manager: plain, raises: raising.New()}
	log := mgr.GetLogger()
	tuner := garbage.New(mgr.Elected())
	if tuner != nil {
		if err := mgr.Add(tuner); err != nil {
			return fmt.Errorf("add what tunes the collection of garbage: %w", err)
		}
	}
	small := index.Small{Cache: mgr.GetCache()}
	if err := errors.Join(index.Setup(ctx, small), report.SetupIndexes(ctx, small)); err != nil {
		return err
	}
	everywhere := index.Small{Cache: mgr.GetCache(), All: true}
	if err := errors.Join(udpports.SetupIndexes(ctx, everywhere), gameserver.SetupIndexes(ctx, everywhere)); err != nil {
		return err
	}
	if err := copies.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	keys := &reportkeys.Keeper{Client: mgr.GetClient(), Namespace: o.Namespace, Reporter: p.Errors}
	if err := keys.Setup(mgr); err != nil {
		return err
	}
	scaler := target.NewScaler(mgr.GetClient(), mgr.GetAPIReader())
	wakeScaler := &gametype.Scaler{Client: mgr.GetClient(), Scaler: scaler, Pods: &firstpods.Pods{}}
	if err := wakeScaler.Pods.Watch(ctx, mgr.GetCache()); err != nil {
		return err
	}
	beside, err := autoscaler.New(mgr, o.Namespaces.Cached())
	if err != nil {
		return err
	}
	counted := metrics.NewInformer(ctrlmetrics.Registry)
	waker := informer.NewWaker(mgr.GetClient(), wakeScaler, mgr.GetEventRecorder("dormouse-informer"), counted)
	waker.Namespaces, waker.Autoscalers, waker.Raises = o.Namespaces, beside, mgr.raises
	allocator, err := setupAllocations(ctx, mgr, waker, o.Namespaces)
	if err != nil {
		return err
	}
	if err := setupFleets(ctx, mgr, stored, allocator, p.Errors); err != nil {
		return err
	}
	if err := setupGameTypes(ctx, mgr, p.Errors); err != nil {
		return err
	}
	verifier, err := serviceauth.New(config, serviceauth.Options{Audience: wellknown.TokenAudience})
	if err != nil {
		return err
	}
	if err := mgr.Add(verifier); err != nil {
		return fmt.Errorf("add the token verifier: %w", err)
	}
	// The operator identifies itself to resolvers and to other replicas with the same token.
	token := tokenfile.New(o.TokenFile)
	reports, err := setupReports(ctx, mgr, o, &reportkeys.Verifier{Keys: keys, Accounts: verifier}, token)
	if err != nil {
		return err
	}
	held := newDisks()
	servers, err := setupServers(mgr, o, keys, reports, allocator, held, p.Errors)
	if err != nil {
		return err
	}
	if err := setupFiles(ctx, mgr, o, held, p.Errors); err != nil {
		return err
	}
	if err := setupBackups(ctx, mgr, o, held, p.Errors); err != nil {
		return err
	}
	if err := setupRestores(ctx, mgr, o, held, p.Errors); err != nil {
		return err
	}
	addresses, err := setupOutbound(mgr, o)
	if err != nil {
		return err
	}
	services, err := setupController(mgr, o, token, scaler, wakeScaler, mgr.raises, beside, reports.Peers, allocator, addresses, p.Errors)
	if err != nil {
		return err
	}
	for controller, passes := range map[string]func() int{"elasticservice": services.Backlog, "server": servers.Backlog} {
		metrics.RegisterBacklog(ctrlmetrics.Registry, controller, passes)
		tuner.Backlog(passes)
	}
	if err := setupAutoscalers(ctx, mgr, scaler, reports.Peers, servers.UsualBoot, addresses, p.Errors); err != nil {
		return err
	}

	p.Register(ctrlmetrics.Registry)
	gatherer, err := gatherObjects(ctx, mgr)
	if err != nil {
		return err
	}
	gatherer.Add(counted)
	if err := watchForWakes(ctx, mgr.GetCache(), counted); err != nil {
		return err
	}
	var synced atomic.Bool
	web := httpserver.New(httpserver.Options{
		Address:      o.Listen,
		MaxBodyBytes: informer.MaxBody,
		// One from each sidecar.
		ManyConnections: true,
		Gatherer:        gatherer,
		AroundScrape:    tuner.PutOff,
		Registerer:      ctrlmetrics.Registry,
		Log:             log.WithName("http"),
		OnPanic:         p.Errors.Panic,
		Ready: func() error {
			if !synced.Load() {
				return errors.New("the caches are not filled yet")
			}
			return nil
		},
	})
	handler := &informer.Handler{
		Verifier: verifier,
		Pods:     mgr.GetClient(),
		Selector: o.ResolverSelector,
		Resolver: types.NamespacedName{Namespace: o.Namespace, Name: o.ResolverServiceAccount},
		Waker:    waker,
		Metrics:  counted,
		Log:      log.WithName("informer"),
	}
	handler.Register(web)
	reports.Register(web)
	if err := web.Listen(ctx); err != nil {
		return err
	}

	asked, err := setupEvictions(ctx, mgr, o, reports.Peers, p.Errors)
	if err != nil {
		return err
	}

	// Not in the manager, which starts its runnables only once caches are filled: health checks
	// must be answered before that.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	webEnded := make(chan error, 1)
	go func() {
		defer cancel()
		defer utilruntime.HandleCrash() // before the others are told to end
		webEnded <- web.Start(ctx)
	}()
	go func() {
		defer utilruntime.HandleCrash()
		synced.Store(mgr.GetCache().WaitForCacheSync(ctx))
	}()
	if asked != nil {
		if err := mgr.Add(asked); err != nil {
			return fmt.Errorf("add the webhook: %w", err)
		}
	}
	err = mgr.Start(ctx)
	cancel()
	return errors.Join(err, <-webEnded)
}

// gatherObjects gathers all metrics, among them those of the objects in the cache.
func gatherObjects(ctx context.Context, mgr ctrl.Manager) (*objectmetrics.Gatherer, error) {
	g := objectmetrics.NewGatherer(ctrlmetrics.Registry)
	return g, errors.Join(
		metrics.AddServices(ctx, g, mgr.GetCache(), mgr.Elected()),
		metrics.AddFleets(ctx, g, mgr.GetCache(), mgr.Elected()),
		metrics.AddAutoscalers(ctx, g, mgr.GetCache(), mgr.Elected()),
	)
}

// watchForWakes fills the caches of the wake endpoint, which serves on every replica, leader or
// not, and drops the metrics of objects that are gone.
func watchForWakes(ctx context.Context, c cache.Cache, counted *metrics.Informer) error {
	if _, err := c.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watch resolver pods: %w", err)
	}
	services, err := c.GetInformer(ctx, &v1alpha1.ElasticService{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch ElasticServices: %w", err)
	}
	_, err = services.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if es, ok := o.(*v1alpha1.ElasticService); ok {
			counted.Forget(es.Namespace, es.Spec.Service)
		}
	}})
	if err != nil {
		return fmt.Errorf("watch ElasticServices: %w", err)
	}
	return nil
}

func setupController(mgr ctrl.Manager, o options.Options, token *tokenfile.File, scaler *target.Scaler, wakeScaler elasticservice.WakeScaler, raises *raising.Raises, beside *autoscaler.Autoscalers, players elasticservice.Players, allocations elasticservice.Allocations, addresses outbound.Addresses, reporter *errortracking.Reporter) (*elasticservice.Reconciler, error) {
	changed := make(chan event.TypedGenericEvent[*v1alpha1.ElasticService], 1024)
	notify := func(key types.NamespacedName) {
		changed <- event.TypedGenericEvent[*v1alpha1.ElasticService]{
			Object: &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}},
		}
	}
	secrets := triggerauth.New(mgr.GetAPIReader())
	poller := trigger.NewPoller(trigger.Options{
		Prometheus: promquery.New(promquery.Options{
			Addresses: addresses, Services: servicesOf(mgr.GetClient()), Secrets: secrets,
		}),
		Secrets: secrets,
		Metrics: metrics.NewTriggers(ctrlmetrics.Registry),
		Notify:  notify,
	})
	if err := mgr.Add(poller); err != nil {
		return nil, fmt.Errorf("add the trigger poller: %w", err)
	}
	pods := resolvers.Pods{
		Client:    mgr.GetClient(),
		Observer:  resolvers.NewObserver(o.ResolverPort, token),
		Namespace: o.Namespace,
		Selector:  o.ResolverSelector,
	}
	targets, err := targetwatch.New(mgr, o.Namespaces.Cached())
	if err != nil {
		return nil, err
	}
	metrics.RegisterTargets(ctrlmetrics.Registry, targets.Count)
	ports := resolverports.New(mgr.GetClient(), o.MaxPortsPerNamespace)
	metrics.RegisterPrices(ctrlmetrics.Registry, o.Prices)
	r := &elasticservice.Reconciler{
		Client:      mgr.GetClient(),
		Live:        mgr.GetAPIReader(),
		Targets:     targets,
		Scaler:      scaler,
		WakeScaler:  wakeScaler,
		Raises:      raises,
		Autoscalers: beside,
		Allocations: allocations,
		Resolvers:   pods,
		Triggers:    poller,
		Notify:      notify,
		Players:     players,
		Events:      mgr.GetEventRecorder("dormouse-operator"),
		Metrics:     metrics.NewController(ctrlmetrics.Registry),
		Reporter:    reporter,
		Ports:       ports,
		Namespaces:  o.Namespaces,
		Prices:      o.Prices,
	}
	if err := r.Setup(mgr, changed); err != nil {
		return nil, err
	}
	f := &fronts.Reconciler{Client: mgr.GetClient(), Resolvers: pods, Ports: ports, Reporter: reporter}
	return r, f.Setup(mgr)
}

func setupServers(mgr ctrl.Manager, o options.Options, keys *reportkeys.Keeper, reports *report.Reports, allocations gameserver.Allocations, held *heldDisks, reporter *errortracking.Reporter) (*gameserver.Reconciler, error) {
	r := &gameserver.Reconciler{
		Client:          mgr.GetClient(),
		Live:            mgr.GetAPIReader(),
		Events:          mgr.GetEventRecorder("dormouse-operator"),
		Reporter:        reporter,
		Reports:         reports,
		Allocations:     allocations,
		Keys:            keys,
		SidecarTemplate: types.NamespacedName{Namespace: o.Namespace, Name: o.SidecarTemplate},
		OperatorURL:     o.OperatorURL,
		APIURL:          o.APIURL,
		LowPort:         o.LowHostPort,
		HighPort:        o.HighHostPort,
		NodeLostAfter:   o.NodeLostAfter,
	}
	held.guard(mgr, r)
	if err := r.Setup(mgr); err != nil {
		return nil, err
	}
	return r, nil
}

func setupFleets(ctx context.Context, mgr ctrl.Manager, stored fleet.Servers, allocations fleet.Allocations, reporter *errortracking.Reporter) error {
	if err := fleet.SetupIndexes(ctx, index.Small{Cache: mgr.GetCache()}); err != nil {
		return err
	}
	r := &fleet.Reconciler{Client: mgr.GetClient(), Servers: stored, Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("dormouse-operator"), Allocations: allocations, Reporter: reporter}
	return r.Setup(mgr)
}

func setupGameTypes(ctx context.Context, mgr ctrl.Manager, reporter *errortracking.Reporter) error {
	if err := gametype.SetupIndexes(ctx, index.Small{Cache: mgr.GetCache()}); err != nil {
		return err
	}
	r := &gametype.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("dormouse-operator"), Reporter: reporter}
	return r.Setup(mgr)
}
