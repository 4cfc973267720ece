package binaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"dormouse.dev/dormouse/internal/dev/devcluster/progress"
)

// Where the distribution's packages put what the cluster runs.
const (
	CNIPlugins = "/usr/lib/cni"
	Containerd = "/usr/bin/containerd"
)

// packages maps what the cluster needs of the machine to the Debian package
// that has it.
var packages = []struct{ file, name string }{
	{Containerd, "containerd"},
	{"runc", "runc"},
	{CNIPlugins + "/bridge", "containernetworking-plugins"},
	{"nft", "nftables"},
	{"iptables", "iptables"},
	{"conntrack", "conntrack"},
	{"ip", "iproute2"},
	{"nsenter", "util-linux"},
	{"mount", "mount"},
}

// missing lists the packages whose files aren't there.
func missing() []string {
	var names []string
	for _, p := range packages {
		if _, err := exec.LookPath(p.file); err != nil {
			names = append(names, p.name)
		}
	}
	return names
}

// Install installs the Debian packages that the cluster needs and that aren't
// installed yet.
func Install(ctx context.Context, out io.Writer) error {
	if err := CheckMachine(); err != nil {
		return err
	}
	names := missing()
	if len(names) == 0 {
		fmt.Fprintln(out, "all packages are installed")
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install packages: this is not a Debian; install these yourself: %s", strings.Join(names, " "))
	}
	fmt.Fprintf(out, "installing %s\n", strings.Join(names, " "))
	for _, args := range [][]string{
		{"update"},
		append([]string{"install", "--yes", "--no-install-recommends"}, names...),
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("run apt-get %s: %w\n%s", args[0], err, progress.LastLines(output, 10))
		}
	}
	if names := missing(); len(names) > 0 {
		return fmt.Errorf("install packages: still missing: %s", strings.Join(names, " "))
	}
	return nil
}

// CheckMachine refuses what could never work, in a newcomer's words.
func CheckMachine() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("the development cluster needs Linux (this is %s); use a virtual machine with Debian", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("the development cluster needs root, to make network namespaces and containers; run it with sudo")
	}
	return nil
}

// CheckPackages tells what to do about missing packages.
func CheckPackages() error {
	if names := missing(); len(names) > 0 {
		return fmt.Errorf("the development cluster needs packages that are missing: %s; \"devcluster install\" installs them on Debian",
			strings.Join(names, ", "))
	}
	return nil
}
