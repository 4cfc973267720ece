package traffic

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// held is connections that say one thing, each another, and wait for its echo: as
// long as there is no server they are held. Where they are to be answered before
// all else, they are idle from then on.
type held struct {
	Job
	poller   *poller
	answered bool
	conns    map[int]uint64
}

func (h *held) prepare() error {
	h.conns = map[int]uint64{}
	for i := range uint64(h.Count) {
		fd, err := connected(unix.SOCK_STREAM, h.Port)
		if err != nil {
			return err
		}
		if err := h.poller.add(fd, unix.EPOLLIN); err != nil {
			return err
		}
		h.conns[fd] = i
		if _, err := unix.Write(fd, message(i)); err != nil {
			return fmt.Errorf("send to port %d: %w", h.Port, err)
		}
	}
	if !h.answered {
		return nil
	}
	o, err := h.play()
	if err == nil && o.Lost > 0 {
		err = fmt.Errorf("%d of %d connections to port %d are not answered", o.Lost, h.Count, h.Port)
	}
	return err
}

func message(i uint64) []byte {
	return binary.NativeEndian.AppendUint64(make([]byte, 0, pingBytes), i)[:pingBytes]
}

// play waits for the echoes. What comes wrong or not at all is lost.
func (h *held) play() (Outcome, error) {
	var o Outcome
	began := time.Now()
	buffer := make([]byte, 2*pingBytes)
	for ended := 0; ended < len(h.conns) && time.Since(began) < patience; {
		events, err := h.poller.wait(time.Second)
		if err != nil {
			return o, err
		}
		for i := range events {
			fd := int(events[i].Fd)
			n, err := unix.Read(fd, buffer)
			if again(err) {
				continue
			}
			ended++
			if n == pingBytes && binary.NativeEndian.Uint64(buffer) == h.conns[fd] {
				o.Done++
			}
			if err != nil || n == 0 {
				_ = unix.Close(fd)
			}
		}
	}
	o.Lost = int64(h.Count) - o.Done
	o.Seconds = time.Since(began).Seconds()
	return o, nil
}
