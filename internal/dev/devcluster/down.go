package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"dormouse.dev/dormouse/internal/dev/devcluster/binaries"
	"dormouse.dev/dormouse/internal/dev/devcluster/host"
)

// Down removes the machine's cluster and every trace of it but the logs. It is
// for a cluster in any condition, and harmless when there is none.
func Down(ctx context.Context, progress io.Writer) error {
	if progress == nil {
		progress = io.Discard
	}
	if err := binaries.CheckMachine(); err != nil {
		return err
	}
	unlock, err := host.Lock(layout{StateDir}.lockPath())
	if err != nil {
		return err
	}
	defer unlock()
	c, err := attach(state{})
	if err != nil {
		return err
	}
	records, err := c.ledger.Records()
	if err != nil {
		return err
	}
	if len(records) == 0 {
		fmt.Fprintln(progress, "no cluster is up")
	}
	began := time.Now()
	if err := c.remove(ctx); err != nil {
		return err
	}
	if len(records) > 0 {
		fmt.Fprintf(progress, "the cluster is removed (%s); its logs are in %s\n", time.Since(began).Round(100*time.Millisecond), c.logs())
	}
	return nil
}

// remove undoes the ledger from its end. Processes go first, whatever their
// place: nothing can be removed from under them, and they might make more.
func (c *Cluster) remove(ctx context.Context) error {
	records, err := c.ledger.Records()
	if err != nil {
		return err
	}
	var failed []error
	for _, r := range records {
		if r.Kind == host.KindProcess {
			failed = append(failed, r.Signal(syscall.SIGKILL))
		}
	}
	if len(records) > 0 {
		failed = append(failed, c.cgroup.Remove(ctx))
	}
	for _, r := range slices.Backward(records) {
		failed = append(failed, c.undo(ctx, r))
	}
	failed = append(failed, host.UnmountBelow(c.dir))
	if err := errors.Join(failed...); err != nil {
		// The ledger stays, so that the next attempt knows what is left.
		return fmt.Errorf("remove the cluster: %w", err)
	}
	return c.removeFiles()
}

func (c *Cluster) undo(ctx context.Context, r host.Record) error {
	switch r.Kind {
	case host.KindProcess, host.KindCgroup:
		// These went first.
	case host.KindNamespace:
		return host.RemoveNamespace(r.Name)
	case host.KindInterface:
		return host.RemoveInterface(ctx, r.Name)
	case host.KindRoute:
		return host.RemoveRoute(ctx, r.Name)
	case host.KindMount:
		return host.RemoveEmptyMount(r.Name)
	case host.KindLink:
		if target, _ := os.Readlink(r.Name); target == c.Kubeconfig() {
			return os.Remove(r.Name)
		}
	}
	return nil
}

// removeFiles empties the state directory, the ledger last. The logs stay, and
// so does the lock, which this program holds.
func (c *Cluster) removeFiles() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("list state directory: %w", err)
	}
	keep := []string{filepath.Base(c.logs()), filepath.Base(c.lockPath()), filepath.Base(c.ledgerPath())}
	for _, entry := range entries {
		if slices.Contains(keep, entry.Name()) {
			continue
		}
		if err := os.RemoveAll(c.join(entry.Name())); err != nil {
			return fmt.Errorf("remove files of the cluster: %w", err)
		}
	}
	if err := host.IgnoreGone(os.Remove(c.ledgerPath())); err != nil {
		return fmt.Errorf("remove ledger: %w", err)
	}
	return nil
}
