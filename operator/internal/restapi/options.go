package restapi

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"

	"k8s.io/apimachinery/pkg/util/validation"

	"dormouse.dev/dormouse/operator/internal/savings"
)

// Options are the API's settings.
type Options struct {
	// Listen is the address of the API, and OwnListen that of metrics and health checks.
	Listen, OwnListen string
	// Namespace is where the servers are.
	Namespace string
	// PublicAddress is where players reach node ports.
	PublicAddress string
	// CertFile and KeyFile are read anew when they change; empty: the API speaks HTTP.
	CertFile, KeyFile string
	// BehindTLS is set where a proxy in front of the API speaks HTTPS: browsers then send the page's
	// cookie over nothing else.
	BehindTLS bool
	// Rate is how many calls a second a user may make, and Burst how many at once.
	Rate  float64
	Burst int
	// SidecarPort is where sidecars answer; 0: where they all do. Only tests set it.
	SidecarPort int
	// Prices are what the administrator pays for what sleeping services save.
	Prices savings.Prices
	// Verbose logs more.
	Verbose bool
	// Listening is told the address of the API; may be nil.
	Listening func(net.Addr)
}

// ParseOptions parses the arguments after the words "operator api". It returns flag.ErrHelp when
// they ask for help.
func ParseOptions(args []string) (Options, error) {
	var o Options
	f := flag.NewFlagSet("operator api", flag.ContinueOnError)
	f.StringVar(&o.Listen, "listen", ":8080", "address of the API and the page")
	f.StringVar(&o.OwnListen, "own-listen", ":8081", "address of /metrics, /healthz and /readyz")
	f.StringVar(&o.Namespace, "server-namespace", os.Getenv("SERVER_NAMESPACE"), "namespace of the servers (default: environment SERVER_NAMESPACE)")
	f.StringVar(&o.PublicAddress, "public-address", "", "host name or IP address at which players reach node ports (default: the address of a node)")
	f.StringVar(&o.CertFile, "tls-cert-file", "", "certificate for HTTPS, with those of the authorities between (default: none, and the API speaks HTTP)")
	f.StringVar(&o.KeyFile, "tls-key-file", "", "the certificate's key")
	f.BoolVar(&o.BehindTLS, "behind-tls", false, "an Ingress or another proxy in front speaks HTTPS: browsers send the page's cookie over nothing else")
	f.Float64Var(&o.Rate, "calls-per-second", 100, "how many calls a second a user may make, on each replica")
	f.IntVar(&o.Burst, "burst", 200, "how many calls a user may make at once")
	f.Float64Var(&o.Prices.CPUHour, "price-cpu-hour", 0, "what a core costs an hour, for the amounts that sleeping servers save (default: no amounts)")
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
	for name, value := range map[string]string{"listen": o.Listen, "own-listen": o.OwnListen} {
		if _, _, err := net.SplitHostPort(value); err != nil {
			errs = append(errs, fmt.Errorf("--%s=%s must be an address such as :8080: %w", name, value, err))
		}
	}
	if o.Namespace == "" {
		errs = append(errs, errors.New("--server-namespace is missing: set it, or SERVER_NAMESPACE in the environment"))
	} else if len(validation.IsDNS1123Label(o.Namespace)) > 0 {
		errs = append(errs, fmt.Errorf("--server-namespace=%s must be the name of a namespace", o.Namespace))
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		errs = append(errs, errors.New("--tls-cert-file and --tls-key-file are needed together"))
	}
	if !(o.Rate > 0) || o.Burst < 1 {
		errs = append(errs, errors.New("--calls-per-second and --burst must be above 0"))
	}
	if o.Prices.CPUHour < 0 || o.Prices.MemoryGiBHour < 0 {
		errs = append(errs, errors.New("--price-cpu-hour and --price-memory-gib-hour must not be negative"))
	}
	return o, errors.Join(errs...)
}

// LogLevel is the level from which on messages are logged.
func (o Options) LogLevel() slog.Level {
	if o.Verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
