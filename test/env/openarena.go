package env

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// openArena is Debian's, a game on ioquake3.
const openArena = "/usr/games/openarena-server"

// OpenArena installs the server and gives the command that runs one with room for
// twelve on a port of loopback, which it keeps to itself. What it writes is in home.
// The command ends with its context.
func OpenArena(ctx context.Context, progress io.Writer, home, name string, port int) (*exec.Cmd, error) {
	_, missing := os.Stat(openArena)
	if err := InstallDebian(ctx, "openarena-server", openArena, progress); err != nil {
		return nil, err
	}
	if _, err := os.Stat("/run/systemd/system"); missing != nil && err == nil {
		// Debian starts it after it is installed, in public; nobody asked for that.
		if out, err := exec.CommandContext(ctx, "systemctl", "disable", "--now", "openarena-server").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("stop Debian's OpenArena: %w\n%s", err, out)
		}
	}
	cmd := exec.CommandContext(
		ctx, openArena,
		// 1 keeps it from telling master servers.
		"+set", "dedicated", "1", "+set", "net_enabled", "1",
		"+set", "net_ip", "127.0.0.1", "+set", "net_port", strconv.Itoa(port),
		"+set", "sv_maxclients", "12", "+set", "sv_hostname", name,
		"+map", "oa_dm1",
	)
	cmd.Env = append(os.Environ(), "HOME="+home)
	// The program is a script, and what it starts has to end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd, nil
}
