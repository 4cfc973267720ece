package files

import "time"

// uploadDrains is how many times as long as a session an upload may go on once the program is to end: a
// file that is half there is in the copy, or the game, for which it ends.
const uploadDrains = 4

// uploadBounds are those of uploads that go on after the time to drain.
type uploadBounds struct {
	// look is how often it is looked whether they have ended. Two looks must agree: a client that has
	// closed a file may give it its name then.
	look time.Duration
	// Within pace at least atLeast bytes must come, which is less than any line is slow: nobody keeps a
	// copy waiting with a byte now and then.
	pace    time.Duration
	atLeast int64
}

var defaultUploadBounds = uploadBounds{look: 5 * time.Second, pace: time.Minute, atLeast: 1 << 20}

// endLate ends a session after the time to drain, once no upload of it goes on. It returns when the session
// has ended.
func (s *session) endLate(ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-s.late:
	}
	look := time.NewTicker(s.uploads.look)
	defer look.Stop()
	since, written := time.Now(), s.handler.written.Load()
	// Without an upload now there is none later.
	for idle := s.handler.uploads.Load() == 0; ; {
		none := s.handler.uploads.Load() == 0
		if none && idle {
			break
		}
		idle = none
		if now := time.Now(); now.Sub(since) >= s.uploads.pace {
			if s.handler.written.Load()-written < s.uploads.atLeast {
				break
			}
			since, written = now, s.handler.written.Load()
		}
		select {
		case <-ended:
			return
		case <-look.C:
		}
	}
	_ = s.conn.Close()
}
