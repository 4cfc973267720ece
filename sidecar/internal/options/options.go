// Package options reads the sidecar's settings from flags and, for those that are
// not given, from the environment.
package options

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/flags"
	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/internal/tokenfile"
	"dormouse.dev/dormouse/sidecar/internal/game"
	"dormouse.dev/dormouse/sidecar/internal/outlive"
)

// Names of the environment variables that identify the Server. The game's own container has
// them, too.
const (
	envName      = "SERVER_NAME"
	envNamespace = "SERVER_NAMESPACE"
)

// Options are the sidecar's settings.
type Options struct {
	// Name and Namespace are the Server's.
	Name, Namespace string
	OperatorURL     string
	// TokenFile has the token for reports where there is no ReportKey.
	TokenFile string
	// ReportKey is what the sidecar signs its own tokens with, as reporttoken.Text gives it, and
	// ReportKeyID names it. PodUID is who signs.
	ReportKey, ReportKeyID, PodUID string
	// GameAPICode is what a game's process shows itself with at the REST API; empty: the Server
	// has no such API.
	GameAPICode   string
	GRPCPort      int
	HTTPPort      int
	ListenAddress string
	LogLevel      slog.Level
	// ProbeType and ProbePort are how to probe the game on 127.0.0.1; empty and 0: it isn't
	// probed.
	ProbeType v1alpha1.ProbeType
	ProbePort int
	// OutliveGame is set where the sidecar, once it was told to end, goes on until the game is
	// gone. GamePorts are the game's.
	OutliveGame bool
	GamePorts   []outlive.Port
	// Game has the settings of the Server's spec for its game.
	Game game.Config
}

// probeTypes are the query protocols.
var probeTypes = map[v1alpha1.ProbeType]bool{
	v1alpha1.ProbeMinecraft: true, v1alpha1.ProbeBedrock: true, v1alpha1.ProbeSource: true, v1alpha1.ProbeQuake3: true,
}

// Parse reads the settings and checks them. If help was asked for it writes that to out and
// returns flag.ErrHelp.
func Parse(args []string, env func(string) (string, bool), out io.Writer) (Options, error) {
	var o Options
	var readiness, unreported, probe, gamePorts string
	var capacity int
	fs := flag.NewFlagSet("sidecar", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&o.OperatorURL, "operator", "http://dormouse-operator.dormouse-system.svc:8080", "where reports go: http://host:port")
	fs.StringVar(&o.TokenFile, "token-file", tokenfile.DefaultPath,
		"the file with the token for reports, of audience "+wellknown.TokenAudience+"; not read where there is a key")
	fs.StringVar(&o.ReportKeyID, "report-key-id", "", "the ID of the key in "+wellknown.ReportKeyEnv+", with which reports are signed; empty: they have a token from a file")
	fs.IntVar(&o.GRPCPort, "grpc-port", 9357, "the loopback port of the Agones SDK over gRPC")
	fs.IntVar(&o.HTTPPort, "http-port", 9358, "the loopback port of the Agones SDK over REST, and of what a game without an SDK calls")
	fs.StringVar(&o.ListenAddress, "listen", ":9359", "where /metrics, /healthz and /readyz are answered: host:port")
	fs.StringVar(&readiness, "readiness", string(v1alpha1.ServerReadinessAuto), "when the game takes players: Auto or SDK")
	fs.StringVar(&unreported, "unreported", string(v1alpha1.DeletionAllowed),
		"whether a game that has said nothing may be deleted: Allowed or Denied")
	fs.IntVar(&capacity, "capacity", 0, "how many may play while nobody says otherwise; 0: not known")
	fs.DurationVar(&o.Game.Health.InitialDelay, "health-initial-delay", 30*time.Second, "how long after its start a game isn't judged")
	fs.DurationVar(&o.Game.Health.Period, "health-period", 5*time.Second, "the time between two probes, and how often a ping is expected")
	fs.IntVar(&o.Game.Health.FailureThreshold, "health-failure-threshold", 3, "how many periods in a row without a word make a game Unhealthy")
	fs.BoolVar(&o.Game.Health.Disabled, "health-disabled", false, "whether every game is taken for healthy")
	fs.StringVar(&probe, "probe", "", "how to ask the game for its players, such as minecraft:25565; empty: it isn't asked")
	fs.BoolVar(&o.OutliveGame, "outlive-game", false, "whether the sidecar goes on after it was told to end while the game has one of --game-ports open, or a connection to the SDK")
	fs.StringVar(&gamePorts, "game-ports", "", "the game's ports, such as 7777/UDP,7778/TCP")
	level := flags.LogLevel(fs)
	fs.Usage = func() {
		_, _ = fmt.Fprintf(out, "Usage: sidecar [flags]\nEach flag can be set in the environment, too: --token-file as %sTOKEN_FILE.\n"+
			"%s and %s, which must be set there, say whose game it is.\n\n", flags.EnvPrefix, envName, envNamespace)
		fs.PrintDefaults()
	}
	if err := flags.Parse(fs, args, env); err != nil {
		return Options{}, err
	}
	var err error
	if o.LogLevel, err = level(); err != nil {
		return Options{}, err
	}
	o.Name, _ = env(envName)
	o.Namespace, _ = env(envNamespace)
	o.GameAPICode, _ = env(gameapi.CodeEnv)
	if o.ReportKeyID != "" {
		o.ReportKey, _ = env(wellknown.ReportKeyEnv)
		o.PodUID, _ = env(wellknown.PodUIDEnv)
	}
	o.Game.Readiness = v1alpha1.ServerReadiness(readiness)
	o.Game.Unreported = v1alpha1.DeletionPermission(unreported)
	if probe != "" {
		kind, port, _ := strings.Cut(probe, ":")
		number, err := strconv.Atoi(port)
		if err != nil || !isPort(number) || !probeTypes[v1alpha1.ProbeType(kind)] {
			return Options{}, fmt.Errorf("--probe must be minecraft, bedrock, source or quake3 with a port, such as minecraft:25565, not %q", probe)
		}
		o.ProbeType, o.ProbePort, o.Game.Probed = v1alpha1.ProbeType(kind), number, true
	}
	if o.GamePorts, err = parsePorts(gamePorts); err != nil {
		return Options{}, err
	}
	if capacity < 0 || capacity > game.MaxPlayers {
		return Options{}, fmt.Errorf("--capacity must be from 0 to %d", game.MaxPlayers)
	}
	o.Game.Capacity, o.Game.AfterGame = int32(capacity), o.OutliveGame
	return o, o.validate()
}

func parsePorts(text string) (ports []outlive.Port, _ error) {
	for part := range strings.SplitSeq(text, ",") {
		if text == "" {
			break
		}
		number, protocol, _ := strings.Cut(part, "/")
		n, err := strconv.Atoi(number)
		if err != nil || !isPort(n) || protocol != string(corev1.ProtocolTCP) && protocol != string(corev1.ProtocolUDP) {
			return nil, fmt.Errorf("--game-ports must be ports with TCP or UDP, such as 7777/UDP,7778/TCP, not %q", text)
		}
		ports = append(ports, outlive.Port{Number: n, Protocol: corev1.Protocol(protocol)})
	}
	return ports, nil
}

func isPort(n int) bool { return n >= 1 && n <= 65535 }

func (o *Options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.Name != "" && o.Namespace != "", "%s and %s must be set in the environment", envName, envNamespace)
	u, err := url.Parse(o.OperatorURL)
	check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && strings.Trim(u.Path, "/") == "" && u.User == nil,
		"--operator must be like http://host:port, not %q", o.OperatorURL)
	check(o.TokenFile != "", "--token-file must name a file")
	check(o.ReportKeyID == "" || o.ReportKey != "" && o.PodUID != "", "with --report-key-id %s and %s must be set in the environment", wellknown.ReportKeyEnv, wellknown.PodUIDEnv)
	// 0 is any free port, which only tests use.
	check(o.GRPCPort == 0 || isPort(o.GRPCPort), "--grpc-port must be from 1 to 65535")
	check(o.HTTPPort == 0 || isPort(o.HTTPPort), "--http-port must be from 1 to 65535")
	_, port, err := net.SplitHostPort(o.ListenAddress)
	number, numberErr := strconv.Atoi(port)
	check(err == nil && numberErr == nil && (number == 0 || isPort(number)), "--listen must be host:port, not %q", o.ListenAddress)
	check(o.Game.Readiness == v1alpha1.ServerReadinessAuto || o.Game.Readiness == v1alpha1.ServerReadinessSDK,
		"--readiness must be Auto or SDK, not %q", o.Game.Readiness)
	check(o.Game.Unreported == v1alpha1.DeletionAllowed || o.Game.Unreported == v1alpha1.DeletionDenied,
		"--unreported must be Allowed or Denied, not %q", o.Game.Unreported)
	h := o.Game.Health
	check(h.InitialDelay >= 0 && h.InitialDelay <= 24*time.Hour, "--health-initial-delay must be from 0s to 24h")
	check(h.Period >= time.Second && h.Period <= time.Hour, "--health-period must be from 1s to 1h")
	check(h.FailureThreshold >= 1 && h.FailureThreshold <= 1000, "--health-failure-threshold must be from 1 to 1000")
	return errors.Join(errs...)
}
