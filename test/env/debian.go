package env

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// InstallDebian installs a package of Debian's where its program is missing.
func InstallDebian(ctx context.Context, name, program string, progress io.Writer) error {
	if _, err := os.Stat(program); err == nil {
		return nil
	}
	fmt.Fprintln(progress, "installing", name)
	for _, args := range [][]string{{"update"}, {"install", "--yes", "--no-install-recommends", name}} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("run apt-get %s for %s: %w\n%s", args[0], name, err, out)
		}
	}
	return nil
}
