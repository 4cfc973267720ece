// Command images compiles the project's programs and builds their images into
// bin/images, without a container engine. It prints the archives' paths, which
// "devcluster load-image" and "docker load" take.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"dormouse.dev/dormouse/internal/dev/images"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	repo := flags.String("repo", ".", "the project's root")
	prefix := flags.String("prefix", os.Getenv("IMAGE_PREFIX"), "registry and path before the images' names; $IMAGE_PREFIX by default")
	tag := flags.String("tag", images.DevTag, "the images' tag")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	built, err := images.BuildPrograms(ctx, *repo, *prefix, *tag, images.Programs(), os.Stderr)
	if err != nil {
		return err
	}
	for _, b := range built {
		fmt.Println(b.Archive)
	}
	return nil
}
