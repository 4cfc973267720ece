// Package options reads the operator's flags and environment.
package options

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"dormouse.dev/dormouse/internal/namespaces"
	"dormouse.dev/dormouse/internal/tokenfile"
	"dormouse.dev/dormouse/operator/internal/savings"
)

// Options are the operator's settings.
type Options struct {
	// Listen is the address of the wake and report endpoints, metrics and health
	// checks.
	Listen string
	// LeaderElect reports whether replicas choose one whose controllers run.
	LeaderElect bool
	// Namespace is the operator's own, in which the resolvers are, too.
	Namespace string
	// Namespaces are the namespaces whose objects are reconciled; empty: all.
	Namespaces namespaces.List
	// PodName is the name of this replica's own Pod; empty outside a Pod.
	PodName string
	// ServiceAccount is the name of the operator's own service account.
	ServiceAccount string
	// Selector finds the operator's pods in Namespace.
	Selector labels.Selector
	// Port is Listen's port, on which each replica answers the others.
	Port int
	// ResolverSelector finds resolver pods in Namespace.
	ResolverSelector labels.Selector
	// ResolverPort is the port on which resolver pods answer.
	ResolverPort int
	// ResolverServiceAccount is the name of the resolvers' service account.
	ResolverServiceAccount string
	// TokenFile has the token with which the operator identifies itself to resolvers.
	TokenFile string
	// OperatorURL is where sidecars reach the operator.
	OperatorURL string
	// APIURL is where games' processes find the REST API.
	APIURL string
	// SidecarTemplate is the name of the PodTemplate in Namespace that has the sidecar's
	// container.
	SidecarTemplate string
	// LowHostPort and HighHostPort bound the host ports that Servers get.
	LowHostPort, HighHostPort int32
	// MaxPortsPerNamespace is how many resolver ports a namespace may have; 0 is any number.
	MaxPortsPerNamespace int
	// WebhookListen is the address at which the API server asks about evictions; empty: it isn't
	// answered. WebhookService is the Service by which it finds that.
	WebhookListen, WebhookService string
	// OutboundNetworks are those that URLs of users' objects may lead to: of GameAutoscalers'
	// webhooks, and of ElasticServices' Prometheus servers; empty: only Services of the cluster
	// are asked.
	OutboundNetworks []netip.Prefix
	// Prices are what the administrator pays for what sleeping services save.
	Prices savings.Prices
	// NodeLostAfter is how long a node may be silent before its Pods count as gone.
	NodeLostAfter time.Duration
	// Verbose logs more.
	Verbose bool
}

// Parse parses the arguments after the program's name. It returns flag.ErrHelp when they ask
// for help.
func Parse(args []string) (Options, error) {
	o := Options{PodName: os.Getenv("POD_NAME")}
	var selector, own, hostPorts, limited, outboundNetworks string
	f := flag.NewFlagSet("operator", flag.ContinueOnError)
	f.StringVar(&o.Listen, "listen", ":8080", "address of the wake and report endpoints, /metrics, /healthz and /readyz")
	f.BoolVar(&o.LeaderElect, "leader-elect", true, "run controllers on one replica at a time")
	f.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "the operator's namespace, where the resolvers are too (default: environment POD_NAMESPACE)")
	f.StringVar(&limited, "namespaces", "", "namespaces whose objects count, separated by commas; others are neither read nor served (default: all)")
	f.StringVar(&o.ServiceAccount, "service-account", "dormouse-operator", "the operator's own service account, whose replicas may ask each other")
	f.StringVar(&own, "selector", "app.kubernetes.io/name=dormouse-operator", "labels of the operator's own pods")
	f.StringVar(&selector, "resolver-selector", "app.kubernetes.io/name=dormouse-resolver", "labels of the resolver pods")
	f.IntVar(&o.ResolverPort, "resolver-port", 8080, "port on which resolver pods answer")
	f.StringVar(&o.ResolverServiceAccount, "resolver-service-account", "dormouse-resolver", "service account whose tokens may wake services")
	f.StringVar(&o.TokenFile, "token-file", tokenfile.DefaultPath, "file with the token that resolvers know the operator by")
	f.StringVar(&o.OperatorURL, "operator-url", "", "where sidecars find the operator (default: http://dormouse-operator.NAMESPACE.svc:8080)")
	f.StringVar(&o.APIURL, "api-url", "", "where games that may call the REST API for themselves find it (default: http://dormouse-api.NAMESPACE.svc)")
	f.StringVar(&o.SidecarTemplate, "sidecar-template", "dormouse-sidecar", "name of the PodTemplate, in the operator's namespace, of what runs beside each game")
	f.StringVar(&hostPorts, "host-ports", "7000-8000", "host ports that Servers get")
	f.IntVar(&o.MaxPortsPerNamespace, "max-ports-per-namespace", 5000, "how many of the 20,000 resolver ports a namespace's services may have; 0 is any number")
	f.DurationVar(&o.NodeLostAfter, "node-lost-after", 5*time.Minute, "how long a node may be silent before its Pods count as gone")
	f.StringVar(&o.WebhookListen, "webhook-listen", "", "address of the webhook that the API server asks about evictions, such as :9443 (default: none)")
	f.StringVar(&o.WebhookService, "webhook-service", "dormouse-operator", "Service in the operator's namespace by which the API server finds the webhook")
	f.StringVar(&outboundNetworks, "outbound-networks", "", "networks that URLs of GameAutoscalers' webhooks and of ElasticServices' Prometheus servers may lead to, as CIDRs separated by commas (default: none, and only Services of the cluster are asked)")
	f.Float64Var(&o.Prices.CPUHour, "price-cpu-hour", 0, "what a core costs an hour, for the amounts that sleeping services save (default: no amounts)")
	f.Float64Var(&o.Prices.MemoryGiBHour, "price-memory-gib-hour", 0, "what a GiB of memory costs an hour, likewise")
	f.StringVar(&o.Prices.Currency, "currency", "", "what the prices are in, such as EUR")
	f.BoolVar(&o.Verbose, "verbose", false, "log more")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q: all settings are flags", f.Arg(0)))
	}
	if _, port, err := net.SplitHostPort(o.Listen); err != nil {
		errs = append(errs, fmt.Errorf("--listen=%s must be an address such as :8080: %w", o.Listen, err))
	} else if o.Port, err = strconv.Atoi(port); err != nil || o.Port < 0 || o.Port > 65535 {
		errs = append(errs, fmt.Errorf("--listen=%s must have a number from 0 to 65535 as its port", o.Listen))
	}
	if _, _, err := net.SplitHostPort(o.WebhookListen); o.WebhookListen != "" && err != nil {
		errs = append(errs, fmt.Errorf("--webhook-listen=%s must be an address such as :9443: %w", o.WebhookListen, err))
	}
	if o.Namespace == "" {
		errs = append(errs, errors.New("--namespace is missing: set it, or POD_NAMESPACE in the environment"))
	}
	var err error
	if o.Namespaces, err = namespaces.Parse(limited); err != nil {
		errs = append(errs, fmt.Errorf("--namespaces=%s: %w", limited, err))
	}
	if o.ResolverPort < 1 || o.ResolverPort > 65535 {
		errs = append(errs, fmt.Errorf("--resolver-port=%d must be from 1 to 65535", o.ResolverPort))
	}
	if o.ResolverSelector, err = labels.Parse(selector); err != nil || selector == "" {
		errs = append(errs, fmt.Errorf("--resolver-selector=%q must be a label selector such as app=resolver", selector))
	}
	if o.Selector, err = labels.Parse(own); err != nil || own == "" {
		errs = append(errs, fmt.Errorf("--selector=%q must be a label selector such as app=operator", own))
	}
	if o.ServiceAccount == "" {
		errs = append(errs, errors.New("--service-account must not be empty"))
	}
	if o.ResolverServiceAccount == "" {
		errs = append(errs, errors.New("--resolver-service-account must not be empty"))
	}
	if o.LowHostPort, o.HighHostPort, err = parsePorts(hostPorts); err != nil {
		errs = append(errs, fmt.Errorf("--host-ports=%s: %w", hostPorts, err))
	}
	if o.OutboundNetworks, err = parseNetworks(outboundNetworks); err != nil {
		errs = append(errs, fmt.Errorf("--outbound-networks=%s must be CIDRs such as 192.0.2.0/24,2001:db8::/32: %w", outboundNetworks, err))
	}
	if o.MaxPortsPerNamespace < 0 {
		errs = append(errs, fmt.Errorf("--max-ports-per-namespace=%d must not be negative", o.MaxPortsPerNamespace))
	}
	if err := checkPrices(o.Prices); err != nil {
		errs = append(errs, err)
	}
	if o.NodeLostAfter < time.Second {
		errs = append(errs, fmt.Errorf("--node-lost-after=%s must be at least 1s", o.NodeLostAfter))
	}
	if o.OperatorURL == "" {
		o.OperatorURL = fmt.Sprintf("http://dormouse-operator.%s.svc:8080", o.Namespace)
	}
	if u, err := url.Parse(o.OperatorURL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		errs = append(errs, fmt.Errorf("--operator-url=%s must be a URL such as http://dormouse-operator.dormouse-system.svc:8080", o.OperatorURL))
	}
	if o.APIURL == "" {
		o.APIURL = fmt.Sprintf("http://dormouse-api.%s.svc", o.Namespace)
	}
	if u, err := url.Parse(o.APIURL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		errs = append(errs, fmt.Errorf("--api-url=%s must be a URL such as http://dormouse-api.dormouse-system.svc", o.APIURL))
	}
	return o, errors.Join(errs...)
}

// LogLevel is the least level that is logged. Verbose is logr's V(1).
func (o Options) LogLevel() slog.Level {
	if o.Verbose {
		return -1
	}
	return slog.LevelInfo
}
