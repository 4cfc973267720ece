package server

import (
	"bufio"
	"io"
	"net"
	"time"

	"dormouse.dev/dormouse/test/gamewire"
)

// answerLines answers a connection's numbered lines until it ends. A client
// that has closed its sending half still gets its last replies.
func (s *Server) answerLines(conn net.Conn) {
	session := s.newSession(conn.RemoteAddr(), conn.LocalAddr())
	in := bufio.NewReaderSize(&countingReader{conn, s.counters.addTCPIn}, gamewire.MaxMessage)
	out := bufio.NewWriter(&countingWriter{conn, s.counters.addTCPOut})
	if _, err := in.Peek(1); err != nil {
		return
	}
	session.firstByte = time.Now()
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			break
		}
		session.take(len(line))
		message, err := gamewire.ParseMessage(line[:len(line)-1])
		if err != nil {
			break
		}
		reply, err := gamewire.AppendReply(nil, s.reply(session, message))
		if err != nil {
			break
		}
		if _, err := out.Write(append(reply, '\n')); err != nil {
			return
		}
		// Flushed once per burst rather than once per line.
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
	_ = out.Flush()
}

// echoBytes sends back what arrives, and closes its half after the client did.
func (s *Server) echoBytes(conn net.Conn) {
	_, err := io.Copy(&countingWriter{conn, s.counters.addTCPOut}, &countingReader{conn, s.counters.addTCPIn})
	if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
		_ = tcp.CloseWrite()
	}
}

type countingReader struct {
	io.Reader
	count func(int)
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.count(n)
	return n, err
}

type countingWriter struct {
	io.Writer
	count func(int)
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.count(n)
	return n, err
}
