package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"dormouse.dev/dormouse/test/gameserver/internal/server"
)

func parseOptions(args []string) (server.Options, error) {
	var o server.Options
	var bind string
	flags := flag.NewFlagSet("gameserver", flag.ContinueOnError)
	flags.StringVar(&bind, "bind", "", "address to listen on; empty is every address")
	tcp := flags.String("tcp", "", "ports that answer numbered lines, comma separated")
	udp := flags.String("udp", "", "ports that answer numbered datagrams, comma separated")
	echoTCP := flags.String("echo", "", "TCP ports that send back what they get, comma separated")
	echoUDP := flags.String("echo-udp", "", "UDP ports that send back what they get, comma separated")
	flags.StringVar(&o.HTTPAddress, "http", ":8080", "address of /players, /healthz, /stats and /crash; empty is none")
	flags.StringVar(&o.SDK, "sdk", "", "URL of a sidecar that is told how many play, and that /sdk/ reaches, such as http://localhost:9358")
	a2s := flags.String("a2s", "", "UDP port that answers Source's A2S_INFO query")
	flags.BoolVar(&o.SDKReady, "sdk-ready", false, "tell the sidecar when the game ports are open; needs --sdk")
	flags.DurationVar(&o.BootDelay, "boot-delay", 0, "time from the start until the game ports open")
	flags.DurationVar(&o.BootSpread, "boot-spread", 0, "up to how much longer that is, by chance")
	flags.IntVar(&o.CrashFirst, "crash-first", 0, "crash this many times after the boot delay instead of listening; needs --crash-file")
	flags.StringVar(&o.CrashFile, "crash-file", "", "file that counts the crashes of --crash-first, on a volume that survives a container's restart")
	flags.DurationVar(&o.CrashAfter, "crash-after", 0, "crash this long after listening; 0s is never")
	flags.DurationVar(&o.Linger, "linger", 0, "time for sessions to end by themselves after SIGTERM")
	flags.StringVar(&o.ID, "id", os.Getenv("POD_NAME"), "identity told in replies; empty is the host's name")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			return o, fmt.Errorf("find the host's name: %w", err)
		}
		o.ID = host
	}
	for _, list := range []struct {
		flag, ports string
		to          *[]string
	}{{"tcp", *tcp, &o.TCP}, {"udp", *udp, &o.UDP}, {"echo", *echoTCP, &o.EchoTCP}, {"echo-udp", *echoUDP, &o.EchoUDP}} {
		addresses, err := parsePorts(bind, list.ports)
		if err != nil {
			return o, fmt.Errorf("read --%s: %w", list.flag, err)
		}
		*list.to = addresses
	}
	if addresses, err := parsePorts(bind, *a2s); err != nil || len(addresses) > 1 {
		return o, fmt.Errorf("read --a2s: want one port, got %q", *a2s)
	} else if len(addresses) == 1 {
		o.A2S = addresses[0]
	}
	if o.CrashFirst > 0 && o.CrashFile == "" {
		return o, fmt.Errorf("read --crash-first: it needs --crash-file to count in")
	}
	return o, nil
}

// parsePorts turns "7000,7001" into addresses on bind.
func parsePorts(bind, list string) ([]string, error) {
	var addresses []string
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		if port, err := strconv.ParseUint(entry, 10, 16); err != nil || port == 0 {
			return nil, fmt.Errorf("%q is not a port from 1 to 65535", entry)
		}
		addresses = append(addresses, net.JoinHostPort(bind, entry))
	}
	return addresses, nil
}
