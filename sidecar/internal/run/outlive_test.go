package run

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/test/reexec"
	"dormouse.dev/dormouse/test/reports"
)

// stayConnected is a game that stays connected until its input ends.
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
			_, end := reexec.Run(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.httpPort)))
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
