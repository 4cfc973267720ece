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

// bulkChunks is how many full buffers in a row show bulk. From then on the bytes stay
// in the kernel, until less than one is there at once: that costs a third, whereas
// small messages gain nothing from it.
const bulkChunks = 8

func copyAll(dst, src *net.TCPConn, count Counter) error {
	c := copier{dst: dst, src: src}
	for {
		n, err := c.next()
		if count != nil && n > 0 {
			count(n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("relaying from %s to %s: %w", src.RemoteAddr(), dst.RemoteAddr(), err)
		}
	}
}

// copier copies one direction.
type copier struct {
	dst, src *net.TCPConn
	reader   *conn.Reader
	writer   *conn.Writer
	splicer  *conn.Splicer
	// full is how many full buffers there were in a row.
	full int
}

// next copies what there is, and tells how much of it got to the other side.
func (c *copier) next() (int, error) {
	if c.full >= bulkChunks {
		n, err := c.splice()
		if n < conn.BufferBytes {
			c.full = 0
		}
		if !errors.Is(err, conn.ErrNoPipe) {
			return n, err
		}
	}
	if c.reader == nil {
		var err, failed error
		c.reader, err = conn.NewReader(c.src)
		c.writer, failed = conn.NewWriter(c.dst)
		if err = errors.Join(err, failed); err != nil {
			return 0, err
		}
	}
	chunk, err := c.reader.Next(conn.BufferBytes)
	if err != nil {
		return 0, err
	}
	defer c.reader.Done()
	c.full++
	if len(chunk) < conn.BufferBytes {
		c.full = 0
	}
	return c.writer.Write(chunk)
}

func (c *copier) splice() (n int, err error) {
	if c.splicer == nil {
		if c.splicer, err = conn.NewSplicer(c.dst, c.src); err != nil {
			return 0, err
		}
	}
	return c.splicer.Next()
}

func closeBoth(a, b *net.TCPConn) {
	_ = a.Close()
	_ = b.Close()
}
