package outlive

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/test/reexec"
)

func TestMain(m *testing.M) {
	if what := reexec.Argument(); what != "" {
		if err := play(what); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// play opens a socket, prints its port, and keeps it until its input ends.
func play(what string) error {
	network, address, _ := strings.Cut(what, " ")
	var port net.Addr
	switch network {
	case "tcp":
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
		if err != nil {
			return err
		}
		defer l.Close()
		port = l.Addr()
	case "udp":
		c, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		port = c.LocalAddr()
	case "dial":
		c, err := new(net.Dialer).Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		port = c.RemoteAddr()
	}
	_, number, err := net.SplitHostPort(port.String())
	if err != nil {
		return err
	}
	fmt.Println(number)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// game starts one in another process, and returns its port. What it returns ends it.
func game(t *testing.T, what string) (port int, end func()) {
	t.Helper()
	line, end := reexec.Run(t, what)
	port, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return port, end
}

func TestTheSidecarOutlivesTheGame(t *testing.T) {
	t.Parallel()
	sdk, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sdk.Close() })
	sdkPort := sdk.Addr().(*net.TCPAddr).Port
	for what, of := range map[string]func(port int) Game{
		"tcp 127.0.0.1:0":             func(port int) Game { return Game{Ports: []Port{{1, corev1.ProtocolUDP}, {port, corev1.ProtocolTCP}}} },
		"tcp [::1]:0":                 func(port int) Game { return Game{Ports: []Port{{port, corev1.ProtocolTCP}}} },
		"udp 127.0.0.1:0":             func(port int) Game { return Game{Ports: []Port{{port, corev1.ProtocolUDP}}} },
		"udp [::1]:0":                 func(port int) Game { return Game{Ports: []Port{{port, corev1.ProtocolUDP}}} },
		"dial " + sdk.Addr().String(): func(int) Game { return Game{SDKPorts: []int{sdkPort}} },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			port, end := game(t, what)
			g := of(port)
			if runs, err := g.runs(); err != nil || !runs {
				t.Errorf("a game with %s doesn't run: %v", what, err)
			}
			waited := make(chan error, 1)
			go func() { waited <- g.Wait(t.Context()) }()
			end()
			select {
			case err := <-waited:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Error("the game has ended, and is still waited for")
			}
			if runs, err := g.runs(); err != nil || runs {
				t.Errorf("a game that has ended still runs: %v", err)
			}
		})
	}
}

// What the sidecar has open itself, others' sockets, and the same port of the other transport
// don't keep it.
func TestWhatIsNotTheGame(t *testing.T) {
	t.Parallel()
	own, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	port, end := game(t, "tcp 127.0.0.1:0")
	defer end()
	for name, g := range map[string]Game{
		"the sidecar's own port": {Ports: []Port{{own.Addr().(*net.TCPAddr).Port, corev1.ProtocolTCP}}},
		"the other transport":    {Ports: []Port{{port, corev1.ProtocolUDP}}},
		"one that only listens":  {SDKPorts: []int{port}},
		"nothing":                {},
	} {
		if runs, err := g.runs(); err != nil || runs {
			t.Errorf("%s counts as a game that runs: %v", name, err)
		}
	}
}

// The sidecar doesn't wait for longer than it may.
func TestTheWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	port, end := game(t, "tcp 127.0.0.1:0")
	defer end()
	ctx, cancel := context.WithCancel(t.Context())
	g := Game{Ports: []Port{{port, corev1.ProtocolTCP}}}
	waited := make(chan error, 1)
	go func() { waited <- g.Wait(ctx) }()
	cancel()
	if err := <-waited; err != nil {
		t.Error(err)
	}
}
