package run

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/test/reports"
)

// gameEnv makes the test's program a game, which stays connected to the address that it names.
const gameEnv = "SIDECAR_TEST_GAME"

// stayConnected stays connected until its input ends.
func stayConnected(address string) (exitCode int) {
	c, err := net.DialTimeout("tcp", address, within)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer c.Close()
	fmt.Println("connected")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// kubelet tells the game and the sidecar to end at once. A game that takes its time to save its
// world has its SDK until it is gone.
func TestTheSDKIsThereWhileTheGameEnds(t *testing.T) {
	for name, outlives := range map[string]bool{"with the game": true, "after the game": false} {
		t.Run("the sidecar is ended "+name, func(t *testing.T) {
			operator := reports.New(t)
			s := start(t, operator, "--outlive-game="+strconv.FormatBool(outlives))
			end := connectedGame(t, s.httpPort)
			defer end()
			s.cancel()
			stopped := make(chan error, 1)
			go func() { stopped <- s.stop() }()
			if outlives {
				for _, chunk := range []string{"first", "last"} {
					s.want("PUT", "/metadata/label", `{"key":"saved","value":"`+chunk+`"}`, 200, "{}")
					operator.Wait("what the game says while it ends", func(r reportapi.Report) bool {
						return r.Game.Labels[wellknown.SDKMetadataPrefix+"saved"] == chunk
					})
				}
				select {
				case err := <-stopped:
					t.Fatalf("the sidecar has ended before the game: %v", err)
				default:
				}
				end()
			}
			select {
			case err := <-stopped:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(within):
				t.Error("the sidecar goes on")
			}
		})
	}
}

// connectedGame starts another process that is connected to a port. What it returns ends it.
func connectedGame(t *testing.T, port int) (end func()) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), gameEnv+"="+net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
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
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return func() {
		if in.Close() == nil {
			_ = cmd.Wait()
		}
	}
}
