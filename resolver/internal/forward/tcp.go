// Package forward owns relaying: it copies between a client and a server once
// they are connected, and counts what it copies. Who is connected to whom, and
// when, is decided elsewhere.
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/conn"
)

// Counter counts bytes on their way; nil counts nothing.
type Counter func(bytes int)

// Relay copies between two TCP connections until both directions have ended,
// and closes both. The end of one direction is passed on as such, so that a
// side that has said all it has to say still hears the rest. A connection that
// is reset is reset on the other side. The end of the context cuts both.
func Relay(ctx context.Context, client, server *net.TCPConn, toServer, toClient Counter) error {
	defer closeBoth(client, server)
	stop := context.AfterFunc(ctx, func() { closeBoth(client, server) })
	defer stop()

	var wg sync.WaitGroup
	var up, down error
	wg.Go(func() {
		defer utilruntime.HandleCrash()
		up = pump(server, client, toServer)
	})
	down = pump(client, server, toClient)
	wg.Wait()
	return errors.Join(up, down)
}

// pump copies one direction.
func pump(dst, src *net.TCPConn, count Counter) error {
	err := copyAll(dst, src, count)
	if err == nil {
		// The other direction goes on. It fails when the other side is gone
		// already, which that direction will notice.
		_ = dst.CloseWrite()
		return nil
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	// Nothing more can get through in this direction; an orderly end would tell
	// the other side that it has everything.
	_ = dst.SetLinger(0)
	_ = src.SetLinger(0)
	closeBoth(dst, src)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

func copyAll(dst, src *net.TCPConn, count Counter) error {
	reader, err := conn.NewReader(src)
	if err != nil {
		return err
	}
	defer reader.Done()
	for {
		chunk, err := reader.Next(conn.BufferBytes)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading from %s: %w", src.RemoteAddr(), err)
		}
		n, err := dst.Write(chunk)
		if count != nil && n > 0 {
			count(n)
		}
		if err != nil {
			return fmt.Errorf("writing to %s: %w", dst.RemoteAddr(), err)
		}
	}
}

func closeBoth(a, b *net.TCPConn) {
	_ = a.Close()
	_ = b.Close()
}
