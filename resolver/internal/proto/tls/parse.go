package tls

import (
	"errors"
	"strings"

	"golang.org/x/crypto/cryptobyte"
)

// Numbers of RFC 8446 and RFC 6066.
const (
	recordHandshake  = 22
	recordMajor      = 3
	recordHeader     = 5
	maxRecord        = 1 << 14
	handshakeHello   = 1
	handshakeHeader  = 4
	helloRandom      = 32
	extensionName    = 0
	nameTypeHost     = 0
	maxSessionID     = 32
	alertRecord      = 21
	alertFatal       = 2
	unrecognizedName = 112
)

// maxHello bounds a hello. Those of browsers have 2 KB with a post-quantum key share.
const maxHello = 16 << 10

var (
	// errShort means that more of the hello may follow.
	errShort = errors.New("the client's hello isn't whole yet")
	// errMalformed means that the bytes are no client's hello.
	errMalformed = errors.New("this is not how a TLS client begins")
)

// parseHello parses the client's hello that b begins with, in however many records it came, and
// returns its server_name as it was sent; empty when there is none. The error is errShort while
// more of it may follow.
func parseHello(b []byte) (serverName []byte, err error) {
	message, err := handshake(b)
	if err != nil {
		return nil, err
	}
	hello := cryptobyte.String(message[handshakeHeader:])
	var session, suites, compressions, extensions cryptobyte.String
	if !hello.Skip(2+helloRandom) || !hello.ReadUint8LengthPrefixed(&session) || len(session) > maxSessionID ||
		!hello.ReadUint16LengthPrefixed(&suites) || len(suites) == 0 || len(suites)%2 != 0 ||
		!hello.ReadUint8LengthPrefixed(&compressions) || len(compressions) == 0 {
		return nil, errMalformed
	}
	if hello.Empty() {
		return nil, nil // a client older than TLS 1.2 may have no extensions
	}
	if !hello.ReadUint16LengthPrefixed(&extensions) || !hello.Empty() {
		return nil, errMalformed
	}
	named := false
	for !extensions.Empty() {
		var kind uint16
		var data cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&data) {
			return nil, errMalformed
		}
		if kind != extensionName {
			continue
		}
		if named { // each extension comes once
			return nil, errMalformed
		}
		named = true
		if serverName, err = hostName(data); err != nil {
			return nil, err
		}
	}
	return serverName, nil
}

// hostName reads the extension server_name.
func hostName(data cryptobyte.String) (host []byte, err error) {
	var list cryptobyte.String
	if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() || list.Empty() {
		return nil, errMalformed
	}
	for !list.Empty() {
		var kind uint8
		var name cryptobyte.String
		if !list.ReadUint8(&kind) || !list.ReadUint16LengthPrefixed(&name) || name.Empty() {
			return nil, errMalformed
		}
		if kind != nameTypeHost {
			continue
		}
		if host != nil { // there is one name of each type
			return nil, errMalformed
		}
		host = name
	}
	return host, nil
}

// handshake returns the first handshake message, which may be spread over records. Only then it
// is a copy.
func handshake(b []byte) ([]byte, error) {
	first, rest, err := record(b)
	if err != nil && !errors.Is(err, errShort) || !mayBegin(first) {
		return nil, errMalformed
	}
	length, ok := messageLength(first)
	if ok && length > maxHello {
		return nil, errMalformed
	}
	if err != nil {
		return nil, err
	}
	if ok && len(first) >= length {
		return first[:length], nil
	}
	// Check first whether all of it is there, so that a client that sends it byte by byte
	// doesn't cause a copy each time.
	var header [handshakeHeader]byte
	have := copy(header[:], first)
	total := len(first)
	for after := rest; ; {
		if have == handshakeHeader {
			if length, _ = messageLength(header[:]); length > maxHello {
				return nil, errMalformed
			}
			if total >= length {
				break
			}
		}
		fragment, next, err := record(after)
		have += copy(header[have:], fragment)
		if header[0] != handshakeHello || err != nil && !errors.Is(err, errShort) {
			return nil, errMalformed
		}
		if err != nil {
			return nil, err
		}
		total += len(fragment)
		after = next
	}
	message := append(make([]byte, 0, total), first...)
	for len(message) < length {
		var fragment []byte
		fragment, rest, _ = record(rest)
		message = append(message, fragment...)
	}
	return message[:length], nil
}

// record cuts the first record off. With errShort it returns what there is of it.
func record(b []byte) (fragment, rest []byte, err error) {
	if len(b) > 0 && b[0] != recordHandshake || len(b) > 1 && b[1] != recordMajor {
		return nil, nil, errMalformed
	}
	if len(b) < recordHeader {
		return nil, nil, errShort
	}
	length := int(b[3])<<8 | int(b[4])
	if length == 0 || length > maxRecord {
		return nil, nil, errMalformed
	}
	if b = b[recordHeader:]; len(b) < length {
		return b, nil, errShort
	}
	return b[:length], b[length:], nil
}

// mayBegin reports whether a client's hello may begin so.
func mayBegin(message []byte) bool { return len(message) == 0 || message[0] == handshakeHello }

// messageLength is how long a handshake message is with its header.
func messageLength(message []byte) (length int, ok bool) {
	if len(message) < handshakeHeader {
		return 0, false
	}
	return handshakeHeader + int(message[1])<<16 + int(message[2])<<8 + int(message[3]), true
}

// normal is a name in the form for comparing: in lower case and without a dot at its end.
func normal(name []byte) string { return strings.ToLower(strings.TrimSuffix(string(name), ".")) }

// appendUnrecognizedName writes the alert unrecognized_name.
func appendUnrecognizedName(to []byte) []byte {
	return append(to, alertRecord, recordMajor, 3, 0, 2, alertFatal, unrecognizedName)
}
