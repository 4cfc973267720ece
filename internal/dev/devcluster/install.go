package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// packages maps what the cluster needs of the machine to the Debian package
// that has it.
var packages = []struct{ file, name string }{
	{containerdPath, "containerd"},
	{"runc", "runc"},
	{cniPlugins + "/bridge", "containernetworking-plugins"},
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
func Install(ctx context.Context, progress io.Writer) error {
	if err := checkMachine(); err != nil {
		return err
	}
	names := missing()
	if len(names) == 0 {
		fmt.Fprintln(progress, "all packages are installed")
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install packages: this is not a Debian; install these yourself: %s", strings.Join(names, " "))
	}
	fmt.Fprintf(progress, "installing %s\n", strings.Join(names, " "))
	for _, args := range [][]string{
		{"update"},
		append([]string{"install", "--yes", "--no-install-recommends"}, names...),
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("run apt-get %s: %w\n%s", args[0], err, lastLines(out, 10))
		}
	}
	if names := missing(); len(names) > 0 {
		return fmt.Errorf("install packages: still missing: %s", strings.Join(names, " "))
	}
	return nil
}

// checkMachine refuses what could never work, in a newcomer's words.
func checkMachine() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("the development cluster needs Linux (this is %s); use a virtual machine with Debian", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("the development cluster needs root, to make network namespaces and containers; run it with sudo")
	}
	return nil
}

// checkPackages tells what to do about missing packages.
func checkPackages() error {
	if names := missing(); len(names) > 0 {
		return fmt.Errorf("the development cluster needs packages that are missing: %s; \"devcluster install\" installs them on Debian",
			strings.Join(names, ", "))
	}
	return nil
}
