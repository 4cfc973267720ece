package probe

import (
	"net"

	"dormouse.dev/dormouse/internal/gameproto/minecraft"
)

// askMinecraft queries a Java edition server with the status request in use since 2013. To the
// server it looks like a client that dialled localhost.
func askMinecraft(port uint16) func(net.Conn) (Status, error) {
	request := minecraft.AppendStatusRequest(nil, "localhost", port)
	return func(conn net.Conn) (Status, error) {
		if _, err := conn.Write(request); err != nil {
			return Status{}, err
		}
		frame, err := minecraft.ReadFrame(conn)
		if err != nil {
			return Status{}, err
		}
		s, err := minecraft.ParseStatus(frame)
		if err != nil {
			return Status{}, uncounted(err)
		}
		return Status{Players: s.Players, Capacity: s.Capacity, Version: s.Version, Name: s.Description}, nil
	}
}
