// Command webserver is the web service of Dormouse's end-to-end tests. It speaks HTTP/1.1,
// HTTP/2 without TLS, WebSocket and gRPC on one port, and tells in each answer from where the
// client came.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	// A process with the number 1 ignores signals that it does not ask for.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "webserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("webserver", flag.ContinueOnError)
	address := flags.String("listen", ":8080", "address to listen on")
	delay := flags.Duration("boot-delay", 0, "time before listening")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	booted := time.NewTimer(*delay)
	defer booted.Stop()
	select {
	case <-booted.C:
	case <-ctx.Done():
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := newServer()
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func newServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{Handler: handler(), Protocols: protocols, ReadHeaderTimeout: 30 * time.Second}
}
