package player

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
)

// closeWriter is a connection whose halves close apart, such as a TCP one.
type closeWriter interface{ CloseWrite() error }

// Echo sends size random bytes to a raw echo port, closes its sending half, and
// reads to the end. It returns an error unless exactly these bytes came back.
func Echo(ctx context.Context, open DialFunc, address string, size int64) error {
	if open == nil {
		open = new(net.Dialer).DialContext
	}
	conn, err := open(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connect to tcp %s: %w", address, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	half, ok := conn.(closeWriter)
	if !ok {
		return fmt.Errorf("echo over %T: it has no half to close", conn)
	}

	sent, received := sha256.New(), sha256.New()
	sending := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, io.TeeReader(io.LimitReader(rand.Reader, size), sent))
		sending <- errors.Join(err, half.CloseWrite())
	}()
	n, err := io.Copy(received, conn)
	if err != nil {
		_ = conn.Close() // So that the sender ends too.
	}
	sendErr := <-sending
	switch {
	case err != nil:
		return fmt.Errorf("receive after %d of %d bytes: %w", n, size, errors.Join(err, context.Cause(ctx)))
	case sendErr != nil:
		return fmt.Errorf("send %d bytes: %w", size, sendErr)
	case n != size:
		return fmt.Errorf("%d of %d bytes came back", n, size)
	case !bytes.Equal(sent.Sum(nil), received.Sum(nil)):
		return fmt.Errorf("%d bytes came back changed", n)
	}
	return nil
}
