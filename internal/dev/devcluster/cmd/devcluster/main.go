// Command devcluster makes, shows and removes the machine's development
// cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"dormouse.dev/dormouse/internal/dev/devcluster"
	"dormouse.dev/dormouse/internal/dev/devcluster/binaries"
)

const usage = `usage: devcluster COMMAND

  install             add the Debian packages that the cluster needs
  up [flags]          make sure that the cluster is up and well
  status              tell whether it is
  load-image TAR...   import image archives into every node
  down                remove the cluster; its logs stay
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("no command given; try \"devcluster help\"")
	}
	switch command, args := args[0], args[1:]; command {
	case "help", "-h", "--help":
		fmt.Print(usage)
		return nil
	case "install":
		return binaries.Install(ctx, os.Stderr)
	case "up":
		return up(ctx, args)
	case "status":
		return status(ctx)
	case "load-image":
		return loadImage(ctx, args)
	case "down":
		return devcluster.Down(ctx, os.Stderr)
	default:
		return fmt.Errorf("unknown command %q; try \"devcluster help\"", command)
	}
}

func up(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	nodes := flags.Int("nodes", 2, "how many `nodes` the cluster has")
	kubeconfig := flags.String("kubeconfig", "", "where to link the kubeconfig, besides "+devcluster.StateDir)
	if err := flags.Parse(args); err != nil {
		return err
	}
	_, err := devcluster.Up(ctx, devcluster.Options{Nodes: *nodes, Kubeconfig: *kubeconfig, Progress: os.Stderr})
	return err
}

func status(ctx context.Context) error {
	cluster, err := devcluster.Open()
	if err != nil {
		return err
	}
	if err := cluster.Check(ctx); err != nil {
		return err
	}
	fmt.Printf("the cluster is up and well: %d nodes\nexport KUBECONFIG=%s\n", cluster.Nodes, cluster.Kubeconfig())
	return nil
}

func loadImage(ctx context.Context, archives []string) error {
	if len(archives) == 0 {
		return errors.New("load-image: no archive given")
	}
	cluster, err := devcluster.Open()
	if err != nil {
		return err
	}
	// The nodes' tools run elsewhere.
	for i, archive := range archives {
		if archives[i], err = filepath.Abs(archive); err != nil {
			return fmt.Errorf("find %s: %w", archive, err)
		}
	}
	return cluster.LoadImage(ctx, archives...)
}
