package probe

import (
	"net"

	"dormouse.dev/dormouse/internal/gameproto/bedrock"
)

// askBedrock queries a Bedrock edition server with an unconnected ping. The ping's time is a
// random number, which the pong repeats.
func askBedrock(conn net.Conn) (Status, error) {
	time := random()
	var s bedrock.Status
	err := exchange(conn, bedrock.AppendPing(nil, time, random()), func(b []byte) error {
		pong, err := bedrock.ParsePong(b)
		if err != nil {
			return err
		}
		if pong.Time != time {
			return errOther
		}
		s = pong.Status
		return nil
	})
	return Status{Players: s.Players, Capacity: s.Capacity, Version: s.Version, Name: s.Name}, err
}
