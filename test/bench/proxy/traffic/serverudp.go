package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// datagrams is how many the server takes at once, and datagramRoom how large they
	// may be.
	datagrams    = 64
	datagramRoom = 2048
	// socketBytes is how much may wait for a UDP socket: what is lost is to be the
	// proxy's loss.
	socketBytes = 4 << 20
)

// datagramEcho is what the UDP port receives, and sends back as it is.
type datagramEcho struct {
	messages [datagrams]unix.Mmsghdr
	names    [datagrams]unix.RawSockaddrInet4
	iovs     [datagrams]unix.Iovec
	buffers  [datagrams][datagramRoom]byte
}

// echoDatagrams is the UDP port.
func echoDatagrams(ctx context.Context) error {
	opened, err := new(net.ListenConfig).ListenPacket(ctx, "udp4", Local(ServerBase+UDPPort))
	if err != nil {
		return fmt.Errorf("open the server's UDP port: %w", err)
	}
	socket := opened.(*net.UDPConn)
	if err := errors.Join(socket.SetReadBuffer(socketBytes), socket.SetWriteBuffer(socketBytes)); err != nil {
		return fmt.Errorf("prepare the server's UDP port: %w", err)
	}
	// This descriptor blocks, which the runtime's own doesn't.
	file, err := socket.File()
	if err != nil {
		return fmt.Errorf("take the server's UDP port: %w", err)
	}
	// Nor is it closed for want of use.
	defer func() { _ = file.Close() }()
	fd := file.Fd()
	fmt.Fprintln(os.Stdout, "ready")
	for e := new(datagramEcho); ; {
		n, err := e.receive(fd)
		if err != nil {
			return err
		}
		e.send(fd, n)
	}
}

// receive waits for datagrams and takes what there is.
func (e *datagramEcho) receive(fd uintptr) (int, error) {
	for i := range e.messages {
		h := &e.messages[i].Hdr
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&e.names[i])), unix.SizeofSockaddrInet4
		e.iovs[i].Base = &e.buffers[i][0]
		e.iovs[i].SetLen(datagramRoom)
		h.Iov = &e.iovs[i]
		h.SetIovlen(1)
	}
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&e.messages[0])), datagrams, unix.MSG_WAITFORONE, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, fmt.Errorf("read datagrams: %w", errno)
		}
	}
}

// send sends the first n back.
func (e *datagramEcho) send(fd uintptr, n int) {
	for i := range n {
		e.iovs[i].SetLen(int(e.messages[i].Len))
	}
	for sent := 0; sent < n; {
		m, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&e.messages[sent])), uintptr(n-sent), 0, 0, 0)
		if errno != 0 {
			m = 1 // the client is gone
		}
		sent += int(m)
	}
}
