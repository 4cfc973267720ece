// Command proxy measures the resolver's data plane beside HAProxy, nginx's stream
// module and no proxy at all, one after the other in each round of one run, on
// loopback. A proxy, the server behind it and the clients are processes of their
// own; what is said of a proxy's processor time and memory is what the kernel says
// of its processes. Its figures are in bin/bench/proxy.json.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"dormouse.dev/dormouse/test/bench/proxy/traffic"
)

// options are what flags say.
type options struct {
	rounds   int
	duration time.Duration
	measures []string
	// proxies are the names of those that take part.
	proxies []string
	// clients, ports, flows and held say how much there is of what they name.
	processes, connections, flows, held, ports int
	rate, udpRate                              float64
	dataplane, before, output                  string
}

// wholeRun bounds all of it.
const wholeRun = 20 * time.Minute

// minRounds is how many rounds figures that are kept must have.
const minRounds = 5

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench proxy:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	// A process that this program starts plays the part that its first argument names.
	if len(args) == 1 {
		switch args[0] {
		case traffic.ServerRole:
			return traffic.Serve(ctx)
		case traffic.LoadRole:
			return traffic.Load(os.Stdin, os.Stdout)
		}
	}
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := checkFiles(o); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wholeRun)
	defer cancel()
	if joined, err := joinNamespace(ctx); joined || err != nil {
		return err
	}
	return measureAll(ctx, o)
}

func parse(args []string) (options, error) {
	var o options
	var names []string
	for _, m := range measures {
		names = append(names, m.name)
	}
	flags := flag.NewFlagSet("proxy", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", minRounds, fmt.Sprintf("how many rounds each measure has; fewer than %d write no file", minRounds))
	flags.DurationVar(&o.duration, "duration", 2*time.Second, "how long a proxy is measured in a round")
	only := flags.String("measures", strings.Join(names, ","), "what is measured; a part of all writes no file")
	taking := flags.String("proxies", "resolver,haproxy,nginx,nginx_one_worker,direct", "which of them are measured; a part of all writes no file")
	flags.IntVar(&o.processes, "processes", 2, "from how many processes clients come")
	flags.IntVar(&o.connections, "connections", 200, "how many connections ping-pong has")
	flags.IntVar(&o.flows, "flows", 1000, "how many UDP flows there are")
	flags.IntVar(&o.held, "held", 8000, "how many connections are held, and how many idle connections and UDP sessions there are")
	flags.IntVar(&o.ports, "ports", 10_000, "how many idle service ports there are")
	flags.Float64Var(&o.rate, "rate", 4000, "paced ping-pongs a second")
	flags.Float64Var(&o.udpRate, "udp-rate", 40_000, "paced UDP echoes a second")
	flags.StringVar(&o.dataplane, "dataplane", "bin/bench-dataplane", "the resolver's data plane as a program")
	flags.StringVar(&o.before, "before", "", "another version of that program, which is measured beside it")
	flags.StringVar(&o.output, "output", filepath.Join("bin", "bench", "proxy.json"), "file for the figures")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.proxies = strings.Split(*taking, ",")
	if o.before != "" {
		proxies = append(proxies, before)
		o.proxies = append(o.proxies, before.name)
	}
	o.measures = strings.Split(*only, ",")
	for _, name := range o.measures {
		if _, ok := find(name); !ok {
			return o, fmt.Errorf("there is no measure %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	if o.rounds < 1 || o.duration < 100*time.Millisecond || o.processes < 1 || o.connections < o.processes || o.flows < o.processes ||
		o.held < o.processes || o.ports < 1 || o.ports > maxPorts || o.rate < 1 || o.udpRate < 1 {
		return o, fmt.Errorf("-duration must be at least 100ms, -ports at most %d, and all other numbers at least 1 for each of the -processes", maxPorts)
	}
	return o, nil
}

// checkFiles looks whether a proxy may have as many files open as it will: two for
// each connection.
func checkFiles(o options) error {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("ask how many files may be open: %w", err)
	}
	if need := uint64(max(2*o.held, o.ports) + 500); files.Max < need {
		return fmt.Errorf("the benchmark needs %d open files a process, and the limit is %d: raise it with ulimit -n, or take fewer connections with -held and -ports", need, files.Max)
	}
	return nil
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}
