package traffic

import "fmt"

// Ports of the server, which listens on their sum with its base. A proxy serves each on its sum
// with a base of its own.
const (
	ServerBase = 13_000
	EchoPort   = 1
	SourcePort = 2
	SinkPort   = 3
	UDPPort    = 4
)

// MaxFiles is how many files the server, a process of clients, and a proxy that asks may open.
const MaxFiles = 20_000

// Local is a port of this machine as an address.
func Local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
