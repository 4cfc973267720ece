package files

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"dormouse.dev/dormouse/internal/flags"
)

// Options are the settings of `sidecar files`.
type Options struct {
	// Listen is where clients connect, and MetricsListen where /metrics, /healthz and /readyz are
	// answered: host:port.
	Listen, MetricsListen string
	// Root is the directory that is served. HostKey is the file with the server's private key,
	// and Users the directory with what users log in with.
	Root, HostKey, Users string
	// UID and GID own new files and directories, where the process may give them away; -1: those
	// of the process.
	UID, GID int
	// IdleTimeout ends a session that moves no byte of SFTP.
	IdleTimeout time.Duration
	// Quota bounds the sum of the files' sizes in bytes; 0: the disk alone is the bound.
	Quota int64
	// MaxConnections bounds the sessions. Half of them may be of one address, and at least one.
	MaxConnections int
	// ProxyProtocol has each connection begin with a header of the PROXY protocol v2, which says
	// where the client is. Whoever can connect to Listen then says so what he likes.
	ProxyProtocol bool
	// Allow are the networks of the clients that may connect; none: all may.
	Allow []netip.Prefix
	// Drain is how long sessions may go on once the program was told to end. A file that is uploaded then
	// may take four times as long, if enough of it comes.
	Drain    time.Duration
	LogLevel slog.Level
}

// Bounds of Options.
const (
	minIdle, maxIdle = time.Second, 24 * time.Hour
	mostConnections  = 256
	mostNetworks     = 256
	maxDrain         = time.Hour
)

// Parse reads the settings from the arguments after `files`, and from the environment, and checks
// them. If help was asked for it writes that to out and returns flag.ErrHelp.
func Parse(args []string, env func(string) (string, bool), out io.Writer) (Options, error) {
	var o Options
	fs := flag.NewFlagSet("sidecar files", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&o.Listen, "listen", ":2022", "where clients of SFTP connect: host:port")
	fs.StringVar(&o.MetricsListen, "metrics-listen", ":9359", "where /metrics, /healthz and /readyz are answered: host:port")
	fs.StringVar(&o.Root, "root", "", "the directory that is served")
	fs.StringVar(&o.HostKey, "host-key", "", "the file with the server's private key, in PEM: Ed25519, ECDSA or RSA")
	fs.StringVar(&o.Users, "users", "", "the directory with a file <user>.password (a bcrypt hash), <user>.keys (as authorized_keys), or both, for each user")
	fs.IntVar(&o.UID, "uid", -1, "the user that owns new files, where this program may give them away; -1: its own")
	fs.IntVar(&o.GID, "gid", -1, "the group that owns new files; -1: its own")
	fs.DurationVar(&o.IdleTimeout, "idle-timeout", 5*time.Minute, "how long a session may move nothing")
	fs.Int64Var(&o.Quota, "quota", 0, "the bytes that all files together may have; 0: as many as the disk holds")
	fs.IntVar(&o.MaxConnections, "max-connections", 16, "how many sessions there may be, half of them of one address")
	fs.BoolVar(&o.ProxyProtocol, "proxy-protocol", false, "each connection must begin with a header of the PROXY protocol v2, whose address is the client's")
	fs.Func("allow", "the networks whose clients may connect, with commas between them, such as 203.0.113.0/24,2001:db8::/32 (default all)", func(text string) (err error) {
		o.Allow, err = networks(text)
		return err
	})
	fs.DurationVar(&o.Drain, "drain", 20*time.Second, "how long sessions may go on once the program is to end; a file that is uploaded then may take four times as long")
	level := flags.LogLevel(fs)
	fs.Usage = func() {
		fmt.Fprintf(out, "Usage: sidecar files [flags]\nServes one directory over SFTP. Each flag can be set in the environment, too: --host-key as %sHOST_KEY.\n\n", flags.EnvPrefix)
		fs.PrintDefaults()
	}
	if err := flags.Parse(fs, args, env); err != nil {
		return Options{}, err
	}
	var err error
	if o.LogLevel, err = level(); err != nil {
		return Options{}, err
	}
	return o, o.validate()
}

func (o *Options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(isAddress(o.Listen), "--listen must be host:port, not %q", o.Listen)
	check(isAddress(o.MetricsListen), "--metrics-listen must be host:port, not %q", o.MetricsListen)
	check(o.Root != "", "--root must name the directory that is served")
	check(o.HostKey != "", "--host-key must name a file")
	check(o.Users != "", "--users must name a directory")
	check(o.UID >= -1, "--uid must be a user's number, or -1")
	check(o.GID >= -1, "--gid must be a group's number, or -1")
	check(o.IdleTimeout >= minIdle && o.IdleTimeout <= maxIdle, "--idle-timeout must be from %s to %s", minIdle, maxIdle)
	check(o.Quota >= 0, "--quota must be 0 or a number of bytes")
	check(o.MaxConnections >= 1 && o.MaxConnections <= mostConnections, "--max-connections must be from 1 to %d", mostConnections)
	check(o.Drain >= 0 && o.Drain <= maxDrain, "--drain must be from 0s to %s", maxDrain)
	return errors.Join(errs...)
}

// networks reads a list of networks.
func networks(text string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		network, err := netip.ParsePrefix(word)
		if err != nil || len(all) == mostNetworks {
			return nil, fmt.Errorf("--allow must be up to %d networks such as 203.0.113.0/24 or 2001:db8::/32, with commas between them, not %q", mostNetworks, text)
		}
		all = append(all, network.Masked())
	}
	return all, nil
}

func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	number, numberErr := strconv.Atoi(port)
	// 0 is any free port, which only tests use.
	return err == nil && numberErr == nil && number >= 0 && number <= 65535
}
