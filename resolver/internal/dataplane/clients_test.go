package dataplane

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gameproto/source"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/env/node"
)

// clientPatience bounds what a client of Node.js does.
const clientPatience = 2 * time.Minute

// mayInstall skips a test whose clients can't be had.
func mayInstall(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, env.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// scripts runs a script of testdata with other people's implementations.
func scripts(t *testing.T, script string) func(args ...string) *said {
	t.Helper()
	if testing.Short() {
		t.Skip("it installs packages")
	}
	modules, err := node.Install(t.Context(), filepath.Join("..", "..", "..", "test", "probes", "node"), os.Stderr)
	mayInstall(t, err)
	return func(args ...string) *said {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), clientPatience)
		cmd := node.Command(ctx, modules, filepath.Join("testdata", script), args...)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close(); cancel(); _ = cmd.Wait() })
		return &said{t: t, lines: bufio.NewScanner(out), in: in}
	}
}

// said is what a script says.
type said struct {
	t     *testing.T
	lines *bufio.Scanner
	in    io.Closer
}

// next reads the next thing into a value.
func (s *said) next(into any) {
	s.t.Helper()
	for s.lines.Scan() {
		// Packages print what they like in between.
		if json.Unmarshal(s.lines.Bytes(), into) == nil {
			return
		}
	}
	s.t.Fatalf("the script ended: %v", s.lines.Err())
}

// clientHeld waits for a client of Node.js to be held, which takes a while to begin.
func (r *rig) clientHeld() {
	r.t.Helper()
	if !within(clientPatience, func() bool { return r.sessions().Queued == 1 }) {
		r.t.Fatal("the client never came")
	}
}

// end is how a client fared.
type end struct{ Joined, Reason, Error string }

func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestOtherPeoplesMinecraftClientsSeeASleepingServerAndJoinIt(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.8.8", "1.12.2", "1.16.5", "1.19.4", "1.20.4", "1.21.4"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			run := scripts(t, "minecraft.js")
			r := newRig(t)
			address := r.serve("game", route.TCP, func(p *route.Port) {
				p.Protocol, p.Answers = v1alpha1.ProtocolMinecraft, proto.Answers{Asleep: "it sleeps", MaxPlayers: 7}
			})
			var list struct {
				Version     struct{ Protocol int }
				Players     struct{ Max, Online int }
				Description struct{ Text string }
				Latency     *int
				Error       string
			}
			run("ping", version, portOf(t, address)).next(&list)
			if list.Error != "" || list.Description.Text != "it sleeps" || list.Players.Max != 7 || list.Latency == nil || list.Version.Protocol < 47 {
				t.Fatalf("the list shows %+v", list)
			}
			r.undisturbed()
			// The first is held for too long.
			r.change(func(rt *route.Route) { rt.Hold.Timeout = time.Second })
			var late, inTime end
			run("join", version, portOf(t, address)).next(&late)
			if !strings.Contains(late.Reason, "Join again") {
				t.Fatalf("a player who waited in vain saw %+v", late)
			}
			r.change(func(rt *route.Route) { rt.Hold.Timeout = time.Minute })
			player := run("join", version, portOf(t, address))
			r.clientHeld()
			server := freeAddress(t, route.TCP)
			r.backend(server, true)
			run("serve", version, portOf(t, server))
			if player.next(&inTime); inTime.Joined != version {
				t.Fatalf("a player who waited saw %+v", inTime)
			}
			// What was learnt of the server is told from now on.
			r.phase(v1alpha1.PhaseAsleep)
			r.backend(server, false)
			list.Version.Protocol = 0
			run("ping", "1.8.8", portOf(t, address)).next(&list)
			if version != "1.8.8" && list.Version.Protocol <= 47 {
				t.Errorf("a client of 1.8.8 is told the protocol %d", list.Version.Protocol)
			}
		})
	}
}

// The game's own clients give up 30 s after the server's last word. Those since 1.13
// are made to wait; older ones are asked to come again.
func TestOtherPeoplesMinecraftClientsWaitForABootOf45Seconds(t *testing.T) {
	t.Parallel()
	const boot = 45 * time.Second
	var all sync.WaitGroup
	for version, waits := range map[string]bool{"1.8.8": false, "1.13.2": true, "1.19.4": true, "1.21.4": true} {
		// All wait at once, however many tests may run in parallel.
		all.Go(func() {
			t.Run(version, func(t *testing.T) {
				run := scripts(t, "minecraft.js")
				r := newRig(t)
				address := r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft))
				// How long it takes to start the server's program doesn't count.
				r.change(func(rt *route.Route) { rt.Hold.Timeout = 5 * time.Minute })
				player := run("join", version, portOf(t, address))
				r.clientHeld()
				up := time.After(boot)
				if !waits {
					var ended end
					if player.next(&ended); !strings.Contains(ended.Reason, "Join again") {
						t.Fatalf("a player who could wait no longer saw %+v", ended)
					}
					player = run("join", version, portOf(t, address))
					r.clientHeld()
				}
				<-up
				server := freeAddress(t, route.TCP)
				var there struct{ Listening int }
				run("serve", version, portOf(t, server)).next(&there)
				r.backend(server, true)
				var ended end
				if player.next(&ended); ended.Joined != version {
					t.Fatalf("a player who waited saw %+v", ended)
				}
			})
		})
	}
	all.Wait()
}

func TestOtherPeoplesBedrockClientsSeeASleepingServerAndJoinIt(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.17.10", "1.20.40", "1.21.60"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			run := scripts(t, "bedrock.js")
			r := newRig(t)
			address := r.serve("game", route.UDP, speaks(v1alpha1.ProtocolBedrock))
			type list struct {
				Motd, LevelName, Version, Error string
				PlayersOnline, PlayersMax       int
			}
			ping := func() (shown list) {
				run("ping", version, portOf(t, address)).next(&shown)
				return shown
			}
			if asleep := ping(); asleep != (list{Motd: "it sleeps", Version: "1.20.4", PlayersMax: 7}) {
				t.Fatalf("the list shows %+v of a sleeping server", asleep)
			}
			r.phase(v1alpha1.PhaseWaking)
			if waking := ping(); !strings.HasPrefix(waking.Motd, "it wakes since ") {
				t.Fatalf("the list shows %+v of a waking server", waking)
			}
			r.phase(v1alpha1.PhaseAsleep)
			r.undisturbed()
			// The game's client gives up a few seconds after its first request.
			server := freeAddress(t, route.UDP)
			var there struct{ Listening int }
			run("serve", version, portOf(t, server)).next(&there)
			first := run("join", version, portOf(t, address))
			r.clientHeld()
			r.eventually("the operator is asked", func() bool { return r.operator.count() > 0 })
			r.backend(server, true)
			for _, player := range []*said{first, run("join", version, portOf(t, address))} {
				var ended end
				if player.next(&ended); ended.Joined != version {
					t.Fatalf("a player saw %+v", ended)
				}
			}
			r.phase(v1alpha1.PhaseAwake)
			if awake := ping(); awake.Motd != "A dormouse" || awake.LevelName != "Burrow" || awake.Version != version {
				t.Fatalf("the list shows %+v of a server", awake)
			}
		})
	}
}

func TestServerBrowsersSeeAServerInAllItsPhases(t *testing.T) {
	t.Parallel()
	mayInstall(t, env.InstallDebian(t.Context(), "qstat", "quakestat", os.Stderr))
	for kind, protocol := range map[string]v1alpha1.Protocol{"-q3s": v1alpha1.ProtocolQuake3, "-a2s": v1alpha1.ProtocolSource} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			address := r.serve("game", route.UDP, speaks(protocol), func(p *route.Port) { p.Answers.Map = "burrow" })
			// -R asks for the rules and -P for the players, too.
			browse := func() string {
				out, err := exec.CommandContext(t.Context(), "quakestat", "-raw", "|", "-nh", "-R", "-P", kind, address).CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				// The type, the address, the name, the map, how many may play and how many
				// do; then how long it took. It says less of a server that doesn't answer.
				line, _, _ := strings.Cut(string(out), "\n")
				fields := strings.Split(line, "|")
				if len(fields) < 6 {
					return line
				}
				return strings.Join(fields[2:6], "|")
			}
			if asleep := browse(); asleep != "it sleeps|burrow|7|0" {
				t.Fatalf("a sleeping server looks like %q", asleep)
			}
			r.phase(v1alpha1.PhaseWaking)
			if waking := browse(); !strings.HasPrefix(waking, "it wakes since ") || !strings.HasSuffix(waking, "|burrow|7|0") {
				t.Fatalf("a waking server looks like %q", waking)
			}
			r.undisturbed()
			server := freePort(t, route.UDP)
			want := "A dormouse|oa_dm1|12|0"
			if protocol == v1alpha1.ProtocolSource {
				// No package that a machine can install has a server that speaks this.
				want = "A dormouse|warren|12|3"
				serveSource(t, server)
			} else {
				serveOpenArena(t, server)
			}
			r.backend(fmt.Sprintf("127.0.0.1:%d", server), true)
			r.phase(v1alpha1.PhaseAwake)
			var awake string
			if !within(clientPatience, func() bool { awake = browse(); return awake == want }) {
				t.Fatalf("a server looks like %q, want %q", awake, want)
			}
		})
	}
}

func serveOpenArena(t *testing.T, port int) {
	t.Helper()
	cmd, err := env.OpenArena(t.Context(), os.Stderr, t.TempDir(), "A dormouse", port)
	mayInstall(t, err)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Cancel(); _ = cmd.Wait() })
}

// serveSource says what a server with three players says.
func serveSource(t *testing.T, port int) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	info := source.AppendAnswer(nil, source.Answer{Info: &source.Info{
		Protocol: 17, Name: "A dormouse", Map: "warren", Folder: "warren", Game: "Warren", Players: 3, Capacity: 12, Type: 'd', OS: 'l', Version: "1.2.3",
	}})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for buffer := make([]byte, 2048); ; {
			n, from, err := c.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			if bytes.HasPrefix(buffer[:n], source.AppendInfoRequest(nil, nil)) {
				_, _ = c.WriteToUDPAddrPort(info, from)
			}
		}
	}()
	t.Cleanup(func() { _ = c.Close(); <-ended })
}
