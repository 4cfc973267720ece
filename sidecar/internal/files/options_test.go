package files

import (
	"errors"
	"flag"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

var needed = []string{"--root=/data", "--host-key=/keys/host", "--users=/users"}

func parse(env map[string]string, args ...string) (Options, error) {
	return Parse(args, func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}, io.Discard)
}

func TestSettingsAndTheirDefaults(t *testing.T) {
	got, err := parse(map[string]string{"DORMOUSE_QUOTA": "1024"}, append(needed, "--uid=1000", "--idle-timeout=1m", "--proxy-protocol", "--allow=203.0.113.9/24, 2001:db8::/32")...)
	check(t, err)
	want := Options{
		Listen: ":2022", MetricsListen: ":9359", Root: "/data", HostKey: "/keys/host", Users: "/users", UID: 1000, GID: -1,
		IdleTimeout: time.Minute, Quota: 1024, MaxConnections: 16, Drain: 20 * time.Second,
		ProxyProtocol: true, Allow: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32")},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if _, err := parse(nil, "--help"); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("help: %v", err)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for _, arg := range []string{
		"--listen=2022", "--metrics-listen=x:y", "--root=", "--host-key=", "--users=", "--uid=-2", "--gid=-2", "--idle-timeout=1ms",
		"--quota=-1", "--max-connections=0", "--max-connections=257", "--drain=-1s", "--allow=203.0.113.7", "--allow=" + strings.Repeat("10.0.0.0/8,", mostNetworks+1), "--log-level=loud",
	} {
		name, _, _ := strings.Cut(arg, "=")
		_, err := parse(nil, append(needed, arg)...)
		wantError(t, arg, err, name+" must")
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	dir := t.TempDir()
	_, key := newKey(t)
	check(t, os.WriteFile(dir+"/key", key, 0o600))
	check(t, os.WriteFile(dir+"/nonsense", []byte("x"), 0o600))
	good := Options{Root: dir, Users: dir, HostKey: dir + "/key", MaxConnections: 1}
	for says, change := range map[string]func(*Options){
		"reading the host key":         func(o *Options) { o.HostKey = dir + "/none" },
		"it must be an Ed25519, ECDSA": func(o *Options) { o.HostKey = dir + "/nonsense" },
		"--users":                      func(o *Options) { o.Users = dir + "/none" },
		"opening --root":               func(o *Options) { o.Root = dir + "/none" },
	} {
		o := good
		change(&o)
		_, err := New(o, prometheus.NewRegistry(), logr.Discard())
		wantError(t, says, err, says)
	}
}
