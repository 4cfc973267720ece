package http1

import "bytes"

const (
	// coldStart is the header by which a client learns that its request waited for a server to
	// start.
	coldStart = "Cold-Start: true\r\n"
	// MarkRoom is how many bytes a Mark adds.
	MarkRoom = len(coldStart)
	// maxStatusLine bounds a response's first line. After a longer one nothing is added.
	maxStatusLine = 512
)

// Mark adds the header Cold-Start to the first response of a server that is none of the interim
// ones. It stands right after the response's first line, so that nothing has to be withheld until
// the head is complete, however long that is. To anything else than plain HTTP/1, and to a change
// of the protocol, nothing is added.
type Mark struct {
	// line is the beginning of the line that isn't finished, and size how much there was of it.
	line []byte
	size int
	// interim is set in the fields of an interim response.
	interim, over bool
}

// Over reports whether nothing is added to what follows.
func (m *Mark) Over() bool { return m.over }

// Add takes in the first n bytes of b, which are what the server sent next. It adds the header
// to them where it belongs there, for which b must have room, and returns how many there are
// then.
func (m *Mark) Add(b []byte, n int) int {
	for at := 0; at < n && !m.over; {
		part := b[at:n]
		end := bytes.IndexByte(part, '\n')
		if end >= 0 {
			part = part[:end+1]
		}
		m.size += len(part)
		m.line = append(m.line, part[:min(len(part), maxStatusLine-len(m.line))]...)
		at += len(part)
		if end < 0 {
			m.over = !m.interim && m.size > maxStatusLine
			return n
		}
		if m.lineEnds() {
			copy(b[at+MarkRoom:], b[at:n])
			copy(b[at:], coldStart)
			return n + MarkRoom
		}
		m.line, m.size = m.line[:0], 0
	}
	return n
}

// lineEnds takes in the end of a line, and reports whether the header belongs after it.
func (m *Mark) lineEnds() bool {
	if m.interim {
		// Clients take a bare line feed for the end of a line, too.
		m.interim = string(m.line) != "\r\n" && string(m.line) != "\n"
		return false
	}
	line, _, _ := cutLine(m.line)
	code, _, ok := statusLine(line)
	m.interim = ok && code < 200 && code != 101
	m.over = !m.interim
	return ok && code >= 200
}
