package conn

import (
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// KeepAlive is how a TCP connection detects a peer that has disappeared. The connection fails
// after Idle and Count times Interval, whether or not something was sent meanwhile.
type KeepAlive struct {
	Idle, Interval time.Duration
	Count          int
}

// DefaultKeepAlive finds peers that are gone within a minute.
var DefaultKeepAlive = KeepAlive{Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// option is a socket option.
type option struct{ level, name, value int }

// options has sent data stay unacknowledged as long as keep-alive takes to detect that a peer is
// gone.
func (k KeepAlive) options() []option {
	unheard := k.Idle + time.Duration(k.Count)*k.Interval
	return []option{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(k.Idle.Seconds())},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(k.Interval.Seconds())},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, k.Count},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unheard.Milliseconds())},
	}
}

// prepared are the options of all sockets: DefaultKeepAlive, and that they send without delay.
var prepared = append(DefaultKeepAlive.options(), option{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1})

// Prepare sets the options of a TCP socket that all have.
func Prepare(fd int) error { return set(fd, prepared) }

func set(fd int, options []option) error {
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

// AddressOf converts the kernel's socket address. IPv4-mapped addresses are returned as IPv4.
func AddressOf(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)) //nolint:gosec // a port
	case *unix.SockaddrInet6:
		address := netip.AddrFrom16(a.Addr).Unmap()
		if a.ZoneId != 0 && address.Is6() {
			address = address.WithZone(strconv.Itoa(int(a.ZoneId)))
		}
		return netip.AddrPortFrom(address, uint16(a.Port)) //nolint:gosec // a port
	}
	return netip.AddrPort{}
}
