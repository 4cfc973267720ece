package probe

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
)

const (
	// maxDatagram bounds an answer. The longest that a game writes in these protocols has 16
	// KiB.
	maxDatagram = 16 << 10
	// maxIgnored bounds how many answers to other questions are skipped.
	maxIgnored = 32
)

// errOther means that a datagram answers another question than the one asked, perhaps that of
// an earlier query whose socket had the same port.
var errOther = errors.New("answers another question")

// exchange sends a request and passes datagrams to read until it accepts one: it skips those
// for which read returns [errOther], and ends with any other error. A datagram is valid until
// read returns.
func exchange(conn net.Conn, request []byte, read func([]byte) error) error {
	if _, err := conn.Write(request); err != nil {
		return err
	}
	// One byte more shows that a datagram was cut.
	buffer := make([]byte, maxDatagram+1)
	for range maxIgnored {
		n, err := conn.Read(buffer)
		if err != nil {
			return err
		}
		if n > maxDatagram {
			return uncounted(fmt.Errorf("read the answer: it has more than %d bytes", maxDatagram))
		}
		if err := read(buffer[:n]); !errors.Is(err, errOther) {
			return uncounted(err)
		}
	}
	return fmt.Errorf("read the answer: %d came, and each %w", maxIgnored, errOther)
}

// random is a number that nobody can guess.
func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // It never fails.
	return binary.BigEndian.Uint64(b[:])
}

// randomWord is a word that nobody can guess.
func randomWord() string {
	return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, random()))
}
