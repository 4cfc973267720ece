package conn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReceiveBytes is how much may wait for a UDP socket to be read, as far as the node
// allows it.
const ReceiveBytes = 1 << 20

// Packets is a UDP socket on all addresses, both families, that knows which of
// them a datagram was sent to, so that replies can come from there. Receive is
// for one goroutine, Send for any number.
type Packets struct {
	conn *net.UDPConn
	raw  syscall.RawConn
	ipv6 bool

	// batch is what was received last, of which next is the first that was not lent
	// yet; nil: nothing is left of it.
	batch   *batch
	next    int
	err     error
	attempt func(fd uintptr) bool
}

// ListenPackets opens a UDP port. Host is empty for all addresses.
func ListenPackets(ctx context.Context, host string, port int) (*Packets, error) {
	p := &Packets{}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			// The address family tells which kind of packet info there is.
			domain, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
			if err != nil {
				failed = os.NewSyscallError("getsockopt", err)
				return
			}
			if domain == unix.AF_INET6 {
				p.ipv6 = true
				failed = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1))
				return
			}
			failed = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1))
		})
		return errors.Join(err, failed)
	}}
	opened, err := config.ListenPacket(ctx, "udp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("opening UDP port %d: %w", port, err)
	}
	p.conn = opened.(*net.UDPConn)
	// One socket receives for all of the port's clients. The kernel grants what
	// the node allows, and takes memory only for what waits.
	_ = p.conn.SetReadBuffer(ReceiveBytes)
	if p.raw, err = p.conn.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("reaching the socket of UDP port %d: %w", port, err), p.conn.Close())
	}
	p.attempt = p.receive
	return p, nil
}

// Port is the socket's port.
func (p *Packets) Port() int { return p.conn.LocalAddr().(*net.UDPAddr).Port }

// Close ends the socket, and Receive with it.
func (p *Packets) Close() error { return p.conn.Close() }

// Receive waits for a datagram and lends it until Done. To is the address that
// it was sent to; it is not valid when the kernel did not say.
func (p *Packets) Receive() (datagram []byte, from netip.AddrPort, to netip.Addr, err error) {
	if p.batch == nil {
		p.err = nil
		err = p.raw.Read(p.attempt)
		if err == nil {
			err = p.err
		}
		if err != nil {
			return nil, netip.AddrPort{}, netip.Addr{}, err
		}
	}
	datagram, from, to = p.batch.datagram(p.next)
	p.next++
	return datagram, from, to, nil
}

// Done gives the datagram of the last Receive back.
func (p *Packets) Done() {
	if p.batch != nil && p.next == p.batch.received {
		batches.Put(p.batch)
		p.batch = nil
	}
}

func (p *Packets) receive(fd uintptr) bool {
	b := batches.Get().(*batch)
	errno := b.receive(fd)
	if errno == 0 {
		p.batch, p.next = b, 0
		return true
	}
	batches.Put(b)
	if errno == unix.EAGAIN {
		return false
	}
	p.err = os.NewSyscallError("recvmmsg", errno)
	return true
}

func networkOrder(port uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], port)
	return binary.BigEndian.Uint16(b[:])
}

// parseDestination finds the packet-info message.
func parseDestination(control []byte) netip.Addr {
	const header = unix.SizeofCmsghdr
	for len(control) >= header {
		length := binary.NativeEndian.Uint64(control)
		level := int32(binary.NativeEndian.Uint32(control[8:])) //nolint:gosec // a bit pattern
		kind := int32(binary.NativeEndian.Uint32(control[12:])) //nolint:gosec // a bit pattern
		if length < header || length > uint64(len(control)) {
			break
		}
		data := control[header:length]
		switch {
		case level == unix.IPPROTO_IP && kind == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			// Interface index, local address, destination address of the header.
			return netip.AddrFrom4([4]byte(data[8:12]))
		case level == unix.IPPROTO_IPV6 && kind == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			return netip.AddrFrom16([16]byte(data[:16]))
		}
		aligned := (length + 7) &^ 7
		if aligned >= uint64(len(control)) {
			break
		}
		control = control[aligned:]
	}
	return netip.Addr{}
}

// Source is the control message that makes replies come from an address; nil,
// for the kernel's choice, when the address isn't known.
func (p *Packets) Source(to netip.Addr) []byte {
	switch {
	case !to.IsValid() || to.IsUnspecified() || to.IsMulticast():
		return nil
	case p.ipv6:
		info := unix.Inet6Pktinfo{Addr: to.As16()}
		return unix.PktInfo6(&info)
	case to.Is4():
		info := unix.Inet4Pktinfo{Spec_dst: to.As4()}
		return unix.PktInfo4(&info)
	}
	return nil
}

// Send sends a datagram to a client, from the address in source.
func (p *Packets) Send(datagram, source []byte, to netip.AddrPort) error {
	_, _, err := p.conn.WriteMsgUDPAddrPort(datagram, source, to)
	return err
}
