package player

import (
	"bufio"
	"errors"
	"net"
	"syscall"

	"dormouse.dev/dormouse/test/gamewire"
)

// framer puts messages on a socket and takes replies off it.
type framer interface {
	attach(net.Conn)
	// write sends one message and returns how many bytes went out.
	write([]byte) (int, error)
	// read returns one reply, valid until the next call.
	read() ([]byte, error)
	// transient reports whether a session may go on after the error.
	transient(error) bool
	// overhead is how many bytes a reply takes on the wire beyond itself.
	overhead() uint64
}

// lines frames by line ends, as over TCP.
type lines struct {
	conn net.Conn
	in   *bufio.Reader
}

func (l *lines) attach(conn net.Conn) {
	l.conn = conn
	l.in = bufio.NewReaderSize(conn, gamewire.MaxMessage)
}

func (l *lines) write(message []byte) (int, error) {
	return l.conn.Write(append(message, '\n'))
}

func (l *lines) read() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	return line[:len(line)-1], nil
}

func (l *lines) transient(error) bool { return false }

func (l *lines) overhead() uint64 { return 1 }

// datagrams has one message in each datagram, as over UDP.
type datagrams struct {
	conn   net.Conn
	buffer []byte
}

func (d *datagrams) attach(conn net.Conn) {
	d.conn = conn
	d.buffer = make([]byte, 64<<10)
}

func (d *datagrams) write(message []byte) (int, error) { return d.conn.Write(message) }

func (d *datagrams) read() ([]byte, error) {
	n, err := d.conn.Read(d.buffer)
	return d.buffer[:n], err
}

// transient is true of ICMP's answer to one datagram: the next may find a server.
func (d *datagrams) transient(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

func (d *datagrams) overhead() uint64 { return 0 }
