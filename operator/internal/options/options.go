// Package options reads the operator's flags and environment.
package options

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"

	"k8s.io/apimachinery/pkg/labels"
)

// Options are the operator's settings.
type Options struct {
	// Listen is the address of the wake endpoint, metrics and health checks.
	Listen string
	// LeaderElect says whether replicas choose one whose controllers run.
	LeaderElect bool
	// Namespace is the operator's own, where the resolvers are too.
	Namespace string
	// ResolverSelector finds resolver pods in Namespace.
	ResolverSelector labels.Selector
	// ResolverPort is where resolver pods answer.
	ResolverPort int
	// ResolverServiceAccount is the name of the resolvers' service account.
	ResolverServiceAccount string
	// TokenFile has the token that resolvers know the operator by.
	TokenFile string
	// Verbose logs more.
	Verbose bool
}

// Parse reads the arguments after the program's name. It returns flag.ErrHelp
// when they ask for help.
func Parse(args []string) (Options, error) {
	var o Options
	var selector string
	f := flag.NewFlagSet("operator", flag.ContinueOnError)
	f.StringVar(&o.Listen, "listen", ":8080", "address of the wake endpoint, /metrics, /healthz and /readyz")
	f.BoolVar(&o.LeaderElect, "leader-elect", true, "run controllers on one replica at a time")
	f.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "the operator's namespace, where the resolvers are too (default: environment POD_NAMESPACE)")
	f.StringVar(&selector, "resolver-selector", "app.kubernetes.io/name=dormouse-resolver", "labels of the resolver pods")
	f.IntVar(&o.ResolverPort, "resolver-port", 8080, "port on which resolver pods answer")
	f.StringVar(&o.ResolverServiceAccount, "resolver-service-account", "dormouse-resolver", "service account whose tokens may wake services")
	f.StringVar(&o.TokenFile, "token-file", "/var/run/secrets/dormouse.dev/token", "file with the token that resolvers know the operator by")
	f.BoolVar(&o.Verbose, "verbose", false, "log more")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q: all settings are flags", f.Arg(0)))
	}
	if _, _, err := net.SplitHostPort(o.Listen); err != nil {
		errs = append(errs, fmt.Errorf("--listen=%s must be an address such as :8080: %w", o.Listen, err))
	}
	if o.Namespace == "" {
		errs = append(errs, errors.New("--namespace is missing: set it, or POD_NAMESPACE in the environment"))
	}
	if o.ResolverPort < 1 || o.ResolverPort > 65535 {
		errs = append(errs, fmt.Errorf("--resolver-port=%d must be from 1 to 65535", o.ResolverPort))
	}
	var err error
	if o.ResolverSelector, err = labels.Parse(selector); err != nil || selector == "" {
		errs = append(errs, fmt.Errorf("--resolver-selector=%q must be a label selector such as app=resolver", selector))
	}
	if o.ResolverServiceAccount == "" {
		errs = append(errs, errors.New("--resolver-service-account must not be empty"))
	}
	return o, errors.Join(errs...)
}
