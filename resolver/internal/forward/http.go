package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

const (
	// quietTime is how long nothing must have been under way before a connection is
	// ended, so that what a client sends right after an answer finds it open.
	quietTime = 2 * time.Second
	// maxSplices is how many bodies of all connections stay in the kernel at once, for
	// each takes a pipe as long as it lasts.
	maxSplices = 64
	// spliceBytes is how much of a body does so at a time, and worthSplicing how much
	// of it must be left.
	spliceBytes   = 1 << 20
	worthSplicing = 256 << 10
	// spliceTime is for how long it may take: what is slower is no bulk.
	spliceTime = 100 * time.Millisecond
)

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// splices has an entry for each body that stays in the kernel.
var splices = make(chan struct{}, maxSplices)

// HTTP is a connection that is relayed and followed meanwhile, so that it can be
// ended while it is idle between requests.
type HTTP struct {
	client, server     *net.TCPConn
	exchange           *http1.Exchange
	toServer, toClient Counter
}

// NewHTTP makes one of a client and a server that are connected. The exchange has
// followed what the server was sent so far.
func NewHTTP(client, server *net.TCPConn, exchange *http1.Exchange, toServer, toClient Counter) *HTTP {
	return &HTTP{client, server, exchange, toServer, toClient}
}

// EndIfQuiet ends the connection if nothing has been under way for a while. It
// doesn't wait for that.
func (h *HTTP) EndIfQuiet(now time.Time) {
	if h.exchange.Quiet(now) >= quietTime {
		// Who reads from the client decides: what it has read is not lost.
		_ = h.client.SetReadDeadline(past)
	}
}

// Relay is the package's Relay. Quiet says that EndIfQuiet ended it.
func (h *HTTP) Relay(ctx context.Context) (quiet bool, err error) {
	defer h.close()
	stop := context.AfterFunc(ctx, h.close)
	defer stop()

	var wg sync.WaitGroup
	var up, down error
	wg.Go(func() {
		defer utilruntime.HandleCrash()
		quiet, up = h.pump(http1.Client, h.server, h.client, h.toServer)
	})
	_, down = h.pump(http1.Server, h.client, h.server, h.toClient)
	wg.Wait()
	return quiet, errors.Join(up, down)
}

func (h *HTTP) close() {
	_ = h.client.Close()
	_ = h.server.Close()
}

// pump copies one direction.
func (h *HTTP) pump(from http1.Side, dst, src *net.TCPConn, count Counter) (quiet bool, err error) {
	c := followed{from: from, dst: dst, src: src, exchange: h.exchange}
	for err == nil {
		var n int
		n, err = c.next()
		if count != nil && n > 0 {
			count(n)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && from == http1.Client {
			err = src.SetReadDeadline(time.Time{})
			if h.exchange.Quiet(time.Now()) >= quietTime && !conn.Waiting(src) {
				h.close()
				return true, nil
			}
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		// The other direction goes on.
		_ = dst.CloseWrite()
		return false, nil
	case errors.Is(err, net.ErrClosed):
		return false, nil
	}
	// Nothing more can get through; an orderly end would tell the other side that it
	// has everything.
	_ = dst.SetLinger(0)
	_ = src.SetLinger(0)
	h.close()
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return false, nil
	}
	return false, fmt.Errorf("relaying from %s to %s: %w", src.RemoteAddr(), dst.RemoteAddr(), err)
}

// followed copies one direction and shows it to the exchange.
type followed struct {
	from     http1.Side
	dst, src *net.TCPConn
	exchange *http1.Exchange
	reader   *conn.Reader
	// full is how many full buffers there were in a row.
	full int
}

// next copies what there is, and tells how much of it got to the other side.
func (f *followed) next() (int, error) {
	if f.full >= bulkChunks {
		if opaque := f.exchange.Opaque(f.from); opaque >= worthSplicing {
			select {
			case splices <- struct{}{}:
				defer func() { <-splices }()
				return f.splice(min(opaque, spliceBytes))
			default:
			}
		}
	}
	if f.reader == nil {
		var err error
		if f.reader, err = conn.NewReader(f.src); err != nil {
			return 0, err
		}
	}
	chunk, err := f.reader.Next(conn.BufferBytes)
	if err != nil {
		return 0, err
	}
	defer f.reader.Done()
	f.full++
	if len(chunk) < conn.BufferBytes {
		f.full = 0
	}
	f.exchange.Read(f.from, chunk)
	defer f.exchange.Passed(f.from)
	return f.dst.Write(chunk)
}

// splice passes on n bytes of a body, or what there is of them.
func (f *followed) splice(n int64) (int, error) {
	begun := time.Now()
	moved, err := f.dst.ReadFrom(&io.LimitedReader{R: f.src, N: n})
	f.exchange.Skip(f.from, int(moved))
	if time.Since(begun) > spliceTime {
		f.full = 0
	}
	if err == nil && moved < n {
		err = io.EOF
	}
	return int(moved), err
}
