package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"dormouse.dev/dormouse/test/bench/proxy/traffic"
)

// Where the other proxies are.
const (
	haproxyProgram = "/usr/sbin/haproxy"
	nginxProgram   = "/usr/sbin/nginx"
	nginxModule    = "/usr/lib/nginx/modules/ngx_stream_module.so"
)

// Ports that the server hasn't.
const (
	// sleepyPort is one whose server the resolver doesn't know of yet.
	sleepyPort = 5
	// idleBase is the first of the ports on which nothing happens.
	idleBase       = 14_000
	maxPorts       = 10_000
	firstEphemeral = 26_000
)

// startTime bounds the start of a proxy.
const startTime = 30 * time.Second

// relay is one port that a proxy is to serve. Server is 0 where there is none yet.
type relay struct {
	network        string
	listen, server int
}

// proxy is one of those that are compared.
type proxy struct {
	name string
	base int
	// start is nil for none at all.
	start func(ctx context.Context, o options, dir string, relays []relay) (*process, error)
	// tcp and udp say what it is measured with.
	tcp, udp bool
}

// proxies are all of them, in the order in which they are shown.
var proxies = []proxy{
	{name: "resolver", base: 10_000, start: dataplane(func(o options) string { return o.dataplane }), tcp: true, udp: true},
	{name: "haproxy", base: 11_000, start: startHAProxy, tcp: true},
	{name: "nginx", base: 12_000, start: nginx("auto"), tcp: true, udp: true},
	// nginx as it is where its configuration doesn't say how many workers it has.
	{name: "nginx_one_worker", base: 9_000, start: nginx("1"), udp: true},
	{name: "direct", base: traffic.ServerBase, tcp: true, udp: true},
}

// serves reports whether a proxy takes part where TCP, or UDP, is measured.
func (p proxy) serves(udp bool) bool { return udp && p.udp || !udp && p.tcp }

// relays are the ports of a proxy for all that the server has.
func (p proxy) relays() []relay {
	all := []relay{
		{"tcp", p.base + traffic.EchoPort, traffic.ServerBase + traffic.EchoPort},
		{"tcp", p.base + traffic.SourcePort, traffic.ServerBase + traffic.SourcePort},
		{"tcp", p.base + traffic.SinkPort, traffic.ServerBase + traffic.SinkPort},
	}
	if p.udp {
		all = append(all, relay{"udp", p.base + traffic.UDPPort, traffic.ServerBase + traffic.UDPPort})
	}
	return all
}

// idle are ports on which nothing happens.
func idle(network string, count int) []relay {
	var all []relay
	for i := range count {
		server := traffic.ServerBase + traffic.EchoPort
		if network == "udp" {
			server = traffic.ServerBase + traffic.UDPPort
		}
		all = append(all, relay{network, idleBase + i, server})
	}
	return all
}

// before is the resolver's data plane as it was at another time, where the options name
// one.
var before = proxy{name: "before", base: 8_000, start: dataplane(func(o options) string { return o.before }), tcp: true, udp: true}

// dataplane starts a program of the resolver's data plane and opens its ports.
func dataplane(program func(options) string) func(context.Context, options, string, []relay) (*process, error) {
	return func(ctx context.Context, o options, _ string, relays []relay) (*process, error) {
		return startResolver(ctx, program(o), relays)
	}
}

func startResolver(ctx context.Context, program string, relays []relay) (*process, error) {
	p, err := startProcess(ctx, "the resolver", program)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(relays); {
		// Ports in a row with the same server are one line.
		n := 1
		for i+n < len(relays) && relays[i+n] == (relay{relays[i].network, relays[i].listen + n, relays[i].server}) {
			n++
		}
		if err := route(p, relays[i], n); err != nil {
			return p, err
		}
		i += n
	}
	return p, nil
}

// route tells the resolver of services.
func route(p *process, r relay, count int) error {
	change := map[string]any{"network": r.network, "port": r.listen, "count": count}
	if r.server != 0 {
		change["server"] = traffic.Local(r.server)
	}
	text, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode a route: %w", err)
	}
	if err := p.tell(text); err != nil {
		return err
	}
	answer, err := p.line()
	if err != nil {
		return err
	}
	if answer != "ok" {
		return fmt.Errorf("the resolver can't serve port %d: %s", r.listen, answer)
	}
	return nil
}

// startHAProxy starts HAProxy with its defaults but for the bounds.
func startHAProxy(ctx context.Context, _ options, dir string, relays []relay) (*process, error) {
	var text strings.Builder
	// It counts two sockets a connection, and some for itself.
	connections := (traffic.MaxFiles-len(relays))/2 - 100
	fmt.Fprintf(&text, "global\n maxconn %d\n ulimit-n %d\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 2m\n timeout server 2m\n", connections, traffic.MaxFiles)
	for _, r := range relays {
		fmt.Fprintf(&text, "listen port%d\n bind %s\n server game %s\n", r.listen, traffic.Local(r.listen), traffic.Local(r.server))
	}
	config := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(config, []byte(text.String()), 0o644); err != nil {
		return nil, fmt.Errorf("write HAProxy's configuration: %w", err)
	}
	return startListening(ctx, relays, "HAProxy", haproxyProgram, "-db", "-q", "-f", config)
}

// nginx starts nginx with a number of workers, or one for each processor: "auto".
func nginx(workers string) func(context.Context, options, string, []relay) (*process, error) {
	return func(ctx context.Context, _ options, dir string, relays []relay) (*process, error) {
		return startNginx(ctx, workers, filepath.Join(dir, "nginx-"+workers), relays)
	}
}

func startNginx(ctx context.Context, workers, dir string, relays []relay) (*process, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make nginx's directory: %w", err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "load_module %s;\ndaemon off;\nworker_processes %s;\nworker_rlimit_nofile %d;\npid %s;\nerror_log stderr crit;\nevents { worker_connections %d; }\nstream {\n proxy_timeout 2m;\n",
		nginxModule, workers, traffic.MaxFiles, filepath.Join(dir, "nginx.pid"), traffic.MaxFiles)
	for _, r := range relays {
		more := ""
		if r.network == "udp" {
			more = " udp"
			if len(relays) < maxPorts {
				// Without it workers take each other's packets. A socket a worker and port
				// is more than may be open of many ports.
				more = " udp reuseport"
			}
		}
		fmt.Fprintf(&text, " server { listen %s%s; proxy_pass %s; }\n", traffic.Local(r.listen), more, traffic.Local(r.server))
	}
	text.WriteString("}\n")
	config := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(config, []byte(text.String()), 0o644); err != nil {
		return nil, fmt.Errorf("write nginx's configuration: %w", err)
	}
	return startListening(ctx, relays, "nginx", nginxProgram, "-e", "stderr", "-p", dir, "-c", config)
}

// startListening starts a proxy and waits until its last TCP port takes connections
// or, where it has only UDP ports, its last one is bound.
func startListening(ctx context.Context, relays []relay, name, program string, args ...string) (*process, error) {
	p, err := startProcess(ctx, name, program, args...)
	if err != nil {
		return nil, err
	}
	last := relays[len(relays)-1]
	for _, r := range relays {
		if r.network == "tcp" {
			last = r
		}
	}
	return p, until(ctx, startTime, name+" listens", func() bool { return listens(ctx, last) })
}

func listens(ctx context.Context, r relay) bool {
	if r.network == "tcp" {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", traffic.Local(r.listen))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	c, err := new(net.ListenConfig).ListenPacket(ctx, "udp", traffic.Local(r.listen))
	if err == nil {
		_ = c.Close()
	}
	return err != nil
}
