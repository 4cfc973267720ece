package options

import (
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func parse(args []string, env map[string]string) (Options, error) {
	return Parse(args, func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}, io.Discard)
}

func TestParse(t *testing.T) {
	defaults := Options{
		OperatorURL:            "http://dormouse-operator.dormouse-system.svc:8080",
		OperatorServiceAccount: "dormouse-system/dormouse-operator",
		TokenFile:              "/var/run/secrets/dormouse.dev/token",
		HTTPAddress:            ":8080",
		MaxUDPSessions:         100000,
		MaxHeldBytes:           256 << 20,
		UDPIdle:                120 * time.Second,
		TCPHalfClosed:          5 * time.Minute,
		DrainDelay:             5 * time.Second,
		DrainTimeout:           time.Hour,
	}
	with := func(change func(*Options)) Options {
		o := defaults
		change(&o)
		return o
	}
	cases := map[string]struct {
		args    []string
		env     map[string]string
		want    Options
		wantErr string
	}{
		"nothing given":   {want: defaults},
		"a flag":          {args: []string{"--drain-timeout=2h"}, want: with(func(o *Options) { o.DrainTimeout = 2 * time.Hour })},
		"the environment": {env: map[string]string{"DORMOUSE_LOG_LEVEL": "debug"}, want: with(func(o *Options) { o.LogLevel = slog.LevelDebug })},
		"a flag beats the environment": {
			args: []string{"--max-udp-sessions=5"}, env: map[string]string{"DORMOUSE_MAX_UDP_SESSIONS": "6"},
			want: with(func(o *Options) { o.MaxUDPSessions = 5 }),
		},
		"the Pod's address": {
			env:  map[string]string{"POD_IP": "10.0.0.7"},
			want: with(func(o *Options) { o.PodIPs = []netip.Addr{netip.MustParseAddr("10.0.0.7")} }),
		},
		"the Pod's addresses of both families": {
			env: map[string]string{"POD_IP": "10.0.0.7", "POD_IPS": "10.0.0.7,fd00::7"},
			want: with(func(o *Options) {
				o.PodIPs = []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}
			}),
		},
		"an address that is none":           {env: map[string]string{"POD_IP": "here"}, wantErr: "reading POD_IP from the environment"},
		"no room for what is held":          {args: []string{"--max-held-bytes=100"}, wantErr: "--max-held-bytes must be"},
		"an unknown flag":                   {args: []string{"--nope"}, wantErr: "flag provided but not defined"},
		"an argument":                       {args: []string{"now"}, wantErr: `"now" is not a flag`},
		"a bad value in the environment":    {env: map[string]string{"DORMOUSE_UDP_IDLE": "soon"}, wantErr: "reading DORMOUSE_UDP_IDLE from the environment"},
		"an operator without a scheme":      {args: []string{"--operator-url=operator:8080"}, wantErr: "--operator-url must be like"},
		"an account without a namespace":    {args: []string{"--operator-service-account=x"}, wantErr: "must be namespace/name"},
		"no token file":                     {args: []string{"--token-file="}, wantErr: "--token-file must name a file"},
		"an address without a port":         {args: []string{"--http-address=localhost"}, wantErr: "--http-address must be host:port"},
		"an address among services' ports":  {args: []string{"--http-address=:12345"}, wantErr: "a port from 10000 to 29999"},
		"no UDP session at all":             {args: []string{"--max-udp-sessions=0"}, wantErr: "--max-udp-sessions must be 1 or more"},
		"sessions that end at once":         {args: []string{"--udp-idle=1ms"}, wantErr: "--udp-idle must be 1s or more"},
		"a drain that ends before it began": {args: []string{"--drain-timeout=1s"}, wantErr: "--drain-timeout must not be shorter"},
		"an unknown log level":              {args: []string{"--log-level=loud"}, wantErr: "--log-level must be debug"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parse(tc.args, tc.env)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHelpIsNoMistake(t *testing.T) {
	if _, err := parse([]string{"--help"}, nil); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("error %v, want %v", err, flag.ErrHelp)
	}
}
