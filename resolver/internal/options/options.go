// Package options reads the resolver's settings from flags and, for those that
// are not given, from the environment.
package options

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/flags"
	"dormouse.dev/dormouse/internal/namespaces"
	"dormouse.dev/dormouse/internal/tokenfile"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
)

// minHeldBytes is twice what the API allows a single client to hold.
const minHeldBytes = 2 << 20

// Options are the resolver's settings.
type Options struct {
	OperatorURL            string
	OperatorServiceAccount string
	TokenFile              string
	HTTPAddress            string
	Kubeconfig             string
	// Namespaces are the namespaces whose services are served; empty: all.
	Namespaces     namespaces.List
	MaxUDPSessions int
	MaxHeldBytes   int64
	UDPIdle        time.Duration
	TCPHalfClosed  time.Duration
	TCPIdle        time.Duration
	AccessLog      bool
	DrainDelay     time.Duration
	DrainTimeout   time.Duration
	LogLevel       slog.Level
	// PodIPs are the Pod's own addresses, which Kubernetes gives in the environment: POD_IPS,
	// separated by commas, else POD_IP. Without them a resolver that is told to stop can't find
	// out whether clients are still sent to it.
	PodIPs []netip.Addr
}

// Parse reads the settings and checks them. If help was asked for it writes that to out and
// returns flag.ErrHelp.
func Parse(args []string, env func(string) (string, bool), out io.Writer) (Options, error) {
	var o Options
	var limited string
	fs := flag.NewFlagSet("resolver", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&o.OperatorURL, "operator-url", "http://dormouse-operator.dormouse-system.svc:8080",
		"where wake calls go: http://host:port")
	fs.StringVar(&o.OperatorServiceAccount, "operator-service-account", "dormouse-system/dormouse-operator",
		"the service account that may ask for /routes and /sessions: namespace/name")
	fs.StringVar(&o.TokenFile, "token-file", tokenfile.DefaultPath,
		"the file with the token for wake calls, of audience "+wellknown.TokenAudience)
	fs.StringVar(&o.HTTPAddress, "http-address", ":8080",
		"where /routes, /sessions, /metrics, /healthz and /readyz are answered: host:port")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "a kubeconfig file; empty: the Pod's own service account")
	fs.StringVar(&limited, "namespaces", "", "the namespaces whose services are served, separated by commas; empty: all")
	fs.IntVar(&o.MaxUDPSessions, "max-udp-sessions", service.DefaultMaxUDPSessions, "how many UDP sessions there may be at once")
	fs.Int64Var(&o.MaxHeldBytes, "max-held-bytes", service.DefaultMaxHeldBytes,
		"how many bytes are held at once for the clients of all services that wake")
	fs.DurationVar(&o.UDPIdle, "udp-idle", service.DefaultUDPIdle, "how long a UDP session may be silent before it ends")
	fs.DurationVar(&o.TCPHalfClosed, "tcp-half-closed", service.DefaultTCPHalfClosed,
		"how long a TCP session may be silent once one side has said all, before it is reset")
	fs.DurationVar(&o.TCPIdle, "tcp-idle", 0, "how long any TCP session may be silent before it is reset; 0s: for ever")
	fs.BoolVar(&o.AccessLog, "access-log", false,
		"whether a line of JSON about each client that goes is written to standard output")
	fs.DurationVar(&o.DrainDelay, "drain-delay", 5*time.Second,
		"how long clients are taken at least after the resolver is told to stop")
	fs.DurationVar(&o.DrainTimeout, "drain-timeout", time.Hour,
		"how long clients are carried at most after the resolver is told to stop")
	level := flags.LogLevel(fs)
	fs.Usage = func() {
		_, _ = fmt.Fprintf(out, "Usage: resolver [flags]\nEach flag can be set in the environment, too: --operator-url as %sOPERATOR_URL.\n\n", flags.EnvPrefix)
		fs.PrintDefaults()
	}
	if err := flags.Parse(fs, args, env); err != nil {
		return Options{}, err
	}
	var err error
	if o.LogLevel, err = level(); err != nil {
		return Options{}, err
	}
	if o.Namespaces, err = namespaces.Parse(limited); err != nil {
		return Options{}, fmt.Errorf("--namespaces=%s: %w", limited, err)
	}
	if o.PodIPs, err = podIPs(env); err != nil {
		return Options{}, err
	}
	return o, o.validate()
}

func podIPs(env func(string) (string, bool)) (out []netip.Addr, err error) {
	name := "POD_IPS"
	value, _ := env(name)
	if value == "" {
		name = "POD_IP"
		value, _ = env(name)
	}
	for text := range strings.SplitSeq(value, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("reading %s from the environment: %w", name, err)
		}
		out = append(out, address)
	}
	return out, nil
}

func (o *Options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	u, err := url.Parse(o.OperatorURL)
	check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && strings.Trim(u.Path, "/") == "" && u.User == nil,
		"--operator-url must be like http://host:port, not %q", o.OperatorURL)
	namespace, name, ok := strings.Cut(o.OperatorServiceAccount, "/")
	check(ok && namespace != "" && name != "" && !strings.Contains(name, "/"),
		"--operator-service-account must be namespace/name, not %q", o.OperatorServiceAccount)
	check(o.TokenFile != "", "--token-file must name a file")
	_, port, err := net.SplitHostPort(o.HTTPAddress)
	number, numberErr := strconv.Atoi(port)
	check(err == nil && numberErr == nil && number >= 0 && number <= 65535,
		"--http-address must be host:port, not %q", o.HTTPAddress)
	check(number < wellknown.MinResolverPort || number > wellknown.MaxResolverPort,
		"--http-address must not use a port from %d to %d, which are for services", wellknown.MinResolverPort, wellknown.MaxResolverPort)
	check(o.MaxUDPSessions > 0, "--max-udp-sessions must be 1 or more")
	check(o.MaxHeldBytes >= minHeldBytes, "--max-held-bytes must be %d or more", minHeldBytes)
	check(o.UDPIdle >= time.Second, "--udp-idle must be 1s or more")
	check(o.TCPHalfClosed >= time.Second, "--tcp-half-closed must be 1s or more")
	check(o.TCPIdle == 0 || o.TCPIdle >= time.Second, "--tcp-idle must be 1s or more, or 0s for none")
	check(o.DrainDelay >= 0, "--drain-delay must be 0s or more")
	check(o.DrainTimeout >= o.DrainDelay, "--drain-timeout must not be shorter than --drain-delay")
	return errors.Join(errs...)
}
